// Measures on which compute units a kernel really runs, on every GPU of this process, and prints it as one JSON line.
//
//   hipcc -O2 -o measure measure.hip && ./measure && ./measure reversed
//
// `reversed` turns the order of the GPUs round first, in ROCR_VISIBLE_DEVICES and HSA_CU_MASK alike, before AMD's runtime
// reads them. A wave tells where it runs by hardware registers; `amd-vgpu validate` knows what their bits mean.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

// S_GETREG's operand: register number, first bit, number of bits minus one.
#define WHOLE_REGISTER(number) ((number) | 0 << 6 | 31 << 11)

// HIP's own __smid() reads another register on gfx12, so the registers are named here.
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define PLACE_REGISTER WHOLE_REGISTER(23) // HW_ID1
#else
#define PLACE_REGISTER WHOLE_REGISTER(4) // HW_ID
#endif
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define XCC_REGISTER WHOLE_REGISTER(20) // XCC_ID
#endif

struct place {
	unsigned hw_id;
	unsigned xcc_id;
};

static void check(hipError_t code, const char *call)
{
	if (code == hipSuccess)
		return;
	std::fprintf(stderr, "measure: %s: %s\n", call, hipGetErrorString(code));
	std::exit(1);
}
#define CHECK(call) check(call, #call)

// Each workgroup stays for a while, so that the next ones have to go to other compute units. It counts its naps: the
// clock of some GPUs has only 20 bits.
__global__ void measure(place *places, int naps)
{
	if (threadIdx.x == 0) {
		place here = {__builtin_amdgcn_s_getreg(PLACE_REGISTER), 0};
#ifdef XCC_REGISTER
		here.xcc_id = __builtin_amdgcn_s_getreg(XCC_REGISTER);
#endif
		places[blockIdx.x] = here;
	}
	for (int i = 0; i < naps; i++)
		__builtin_amdgcn_s_sleep(1);
}

static std::vector<std::string> split(const std::string &text, char separator)
{
	std::vector<std::string> parts;
	size_t start = 0;

	for (size_t end; (end = text.find(separator, start)) != std::string::npos; start = end + 1)
		parts.push_back(text.substr(start, end - start));
	parts.push_back(text.substr(start));
	return parts;
}

static std::string variable(const char *name)
{
	const char *value = std::getenv(name);

	return value ? value : "";
}

// "A,B" becomes "B,A", and "0:a;1:b" becomes "0:b;1:a".
static void reverse_order()
{
	std::vector<std::string> devices = split(variable("ROCR_VISIBLE_DEVICES"), ',');
	std::vector<std::string> sets = split(variable("HSA_CU_MASK"), ';');
	std::string visible;
	std::string mask;

	for (size_t i = devices.size(); i-- > 0;)
		visible += devices[i] + (i ? "," : "");
	for (size_t i = sets.size(); i-- > 0;)
		mask += std::to_string(sets.size() - 1 - i) + sets[i].substr(sets[i].find(':')) + (i ? ";" : "");
	setenv("ROCR_VISIBLE_DEVICES", visible.c_str(), 1);
	setenv("HSA_CU_MASK", mask.c_str(), 1);
}

static std::string quoted(const std::string &text)
{
	std::string result = "\"";

	for (char c : text) {
		if (c == '"' || c == '\\')
			result += '\\';
		if (static_cast<unsigned char>(c) >= ' ')
			result += c;
	}
	return result + '"';
}

static std::string uuid_of(int device)
{
	hipUUID uuid;

	// AMD's runtime gives the 16 hex digits of the GPU's unique id, as text.
	if (hipDeviceGetUuid(&uuid, device) != hipSuccess)
		return "";
	return "GPU-" + std::string(uuid.bytes, strnlen(uuid.bytes, sizeof(uuid.bytes)));
}

static std::string report_device(int device)
{
	enum { GROUPS_PER_UNIT = 64, ROUNDS = 3, THREADS = 1024, NAPS = 3000 };
	hipDeviceProp_t properties;
	char pci[64] = "";
	place *places;
	std::map<std::pair<unsigned, unsigned>, unsigned> waves;
	std::string line;

	CHECK(hipSetDevice(device));
	CHECK(hipGetDeviceProperties(&properties, device));
	CHECK(hipDeviceGetPCIBusId(pci, sizeof(pci), device));
	const unsigned groups = properties.multiProcessorCount * GROUPS_PER_UNIT;
	CHECK(hipHostMalloc(reinterpret_cast<void **>(&places), groups * sizeof(*places), 0));
	for (int round = 0; round < ROUNDS; round++) {
		hipLaunchKernelGGL(measure, dim3(groups), dim3(THREADS), 0, 0, places, NAPS);
		CHECK(hipGetLastError());
		CHECK(hipDeviceSynchronize());
		for (unsigned i = 0; i < groups; i++)
			waves[{places[i].hw_id, places[i].xcc_id}]++;
	}
	CHECK(hipHostFree(places));
	line = "{\"arch\": " + quoted(properties.gcnArchName) + ", \"pci\": " + quoted(pci) +
	       ", \"uuid\": " + quoted(uuid_of(device)) + ", \"waves\": [";
	for (const auto &[where, count] : waves)
		line += "[" + std::to_string(where.first) + "," + std::to_string(where.second) + "],";
	line.back() = ']';
	return line + "}";
}

int main(int argc, char **argv)
{
	const bool reversed = argc > 1 && std::strcmp(argv[1], "reversed") == 0;
	int count = 0;
	std::string line;

	if (reversed)
		reverse_order();
	CHECK(hipGetDeviceCount(&count));
	line = "{\"amd-vgpu-validate\": 1, \"pod\": " + quoted(variable("POD")) +
	       ", \"reversed\": " + (reversed ? "true" : "false") + ", \"visible\": " + quoted(variable("ROCR_VISIBLE_DEVICES")) +
	       ", \"mask\": " + quoted(variable("HSA_CU_MASK")) + ", \"allocated\": " + quoted(variable("ALLOCATED")) +
	       ", \"cus\": " + quoted(variable("CUS")) + ", \"devices\": [";
	for (int device = 0; device < count; device++)
		line += (device ? ", " : "") + report_device(device);
	std::printf("%s]}\n", line.c_str());
	return 0;
}
