/* A STAND-IN for AMD's libamdhip64, for machines without a GPU. It is not HIP and runs nothing.
 *
 * It has the entry points, struct layouts, error codes and habits of HIP that matter to a library which limits memory:
 * it calls its own public functions through its PLT, hands out a freed address again at once, keeps a last error per
 * thread, and resolves hipGetProcAddress with dlsym. Device memory is bookkeeping only: 48 GiB cost nothing.
 *
 *   STANDIN_HIP_DEVICES  number of GPUs; default: the entries of ROCR_VISIBLE_DEVICES, as ROCr would show, else 1
 *   STANDIN_HIP_MIB      memory of each GPU in MiB; default 196608
 *   STANDIN_HIP_OTHERS_MIB memory of each GPU that other processes hold; default 0
 *   STANDIN_HIP_FAIL_FREE  while it is set, hipFree returns hipErrorUnknown and frees nothing
 *   STANDIN_HIP_NAMELESS   while it is set, GPUs have neither PCI address nor UUID
 *   STANDIN_HIP_RESET_KEEPS while it is set, hipDeviceReset frees nothing, as in HIP 5.2
 *   STANDIN_HIP_PIECES     while it is set, pools cannot use what they have idle
 *   HIP_VISIBLE_DEVICES  indices of the GPUs that HIP shows, counted up to the first invalid one
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin.h"

enum { BUCKETS = 4096, PITCH = 256 };
#define ADDRESS_SPACE ((size_t)1 << 43)
#define GRANULE ((size_t)4096)

struct block {
	char *address;
	size_t room; /* address range; memory of the GPU is `bytes` */
	size_t bytes;
	int device;
	struct block *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int device_count;
int physical[MAX_DEVICES];
static size_t device_bytes;
static size_t used[MAX_DEVICES];
static size_t peak[MAX_DEVICES];
static struct block *buckets[BUCKETS];
static struct block *freed;
static char *next_address;
static char *end_address;
static pthread_barrier_t meeting;
static int meeting_size;
static void (*visitor)(void);
static __thread int current_device;
static __thread unsigned asked;
static __thread hipError_t last_error;

static int entries(const char *list)
{
	int count = *list != '\0';

	for (; *list; list++)
		count += *list == ',';
	return count;
}

/* What HIP_VISIBLE_DEVICES shows, and which GPU each of them is. */
static int visible_to_hip(const char *list, int count)
{
	int shown = 0;
	char *end;

	while (*list && shown < count) {
		long index = strtol(list, &end, 10);

		if (end == list || index < 0 || index >= count)
			break;
		physical[shown++] = (int)index;
		list = *end == ',' ? end + 1 : end;
	}
	return shown;
}

static void lock(void)
{
	pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static void start(void)
{
	const char *devices = getenv("STANDIN_HIP_DEVICES");
	const char *rocr = getenv("ROCR_VISIBLE_DEVICES");
	const char *hip = getenv("HIP_VISIBLE_DEVICES");
	const char *mib = getenv("STANDIN_HIP_MIB");
	const char *others = getenv("STANDIN_HIP_OTHERS_MIB");

	device_count = devices ? atoi(devices) : rocr ? entries(rocr) : 1;
	if (device_count > MAX_DEVICES)
		device_count = MAX_DEVICES;
	for (int device = 0; device < device_count; device++)
		physical[device] = device;
	if (hip && *hip)
		device_count = visible_to_hip(hip, device_count);
	device_bytes = (size_t)(mib ? atol(mib) : 196608) << 20;
	for (int device = 0; others && device < device_count; device++)
		used[device] = (size_t)atol(others) << 20;
	next_address = mmap(NULL, ADDRESS_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (next_address == MAP_FAILED) {
		perror("stand-in HIP: no address space");
		abort();
	}
	end_address = next_address + ADDRESS_SPACE;
	pthread_atfork(lock, unlock, unlock);
}

/* Every public function ends here, so that hipGetLastError knows. */
hipError_t result(hipError_t code)
{
	if (code != hipSuccess)
		last_error = code;
	return code;
}

hipError_t check_device(int device)
{
	pthread_once(&once, start);
	/* HIP 5.7 answers the first call of a thread with another code than the later ones. */
	if (device_count < 1)
		return asked++ ? hipErrorNoDevice : hipErrorInvalidDevice;
	return device < 0 || device >= device_count ? hipErrorInvalidDevice : hipSuccess;
}

__attribute__((destructor)) static void stop(void)
{
	if (end_address)
		munmap(end_address - ADDRESS_SPACE, ADDRESS_SPACE);
}

static struct block **bucket_of(const void *address)
{
	return &buckets[((uintptr_t)address / GRANULE) % BUCKETS];
}

/* The address freed last comes back first, as real allocators do it. */
static struct block *new_block(size_t bytes)
{
	size_t room = (bytes + GRANULE - 1) / GRANULE * GRANULE;
	struct block *block = freed;

	if (block && block->room >= room) {
		freed = block->next;
		return block;
	}
	if (room > (size_t)(end_address - next_address))
		return NULL;
	block = malloc(sizeof(*block));
	if (block) {
		block->address = next_address;
		block->room = room;
		next_address += room;
	}
	return block;
}

hipError_t hipGetDeviceCount(int *count)
{
	hipError_t code = check_device(0);

	if (!count)
		return result(hipErrorInvalidValue);
	*count = device_count;
	return result(code);
}

hipError_t hipGetDevice(int *device)
{
	hipError_t code = check_device(0);

	if (code == hipSuccess)
		*device = current_device;
	return result(code);
}

hipError_t hipSetDevice(int device)
{
	hipError_t code = check_device(device);

	if (code == hipSuccess)
		current_device = device;
	return result(code);
}

hipError_t hipDeviceTotalMem(size_t *bytes, int device)
{
	hipError_t code = check_device(device);

	if (code == hipSuccess && !bytes)
		code = hipErrorInvalidValue;
	if (code == hipSuccess)
		*bytes = device_bytes;
	return result(code);
}

/* Asks hipDeviceTotalMem through the PLT: a hook on the way must let inner calls pass. */
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	size_t total = 0;
	hipError_t code = hipDeviceTotalMem(&total, current_device);

	if (code != hipSuccess)
		return result(code);
	lock();
	if (free_bytes)
		*free_bytes = total - used[current_device];
	unlock();
	if (total_bytes)
		*total_bytes = total;
	return hipSuccess;
}

static bool take_locked(int device, size_t bytes)
{
	if (bytes > device_bytes - used[device])
		return false;
	used[device] += bytes;
	if (used[device] > peak[device])
		peak[device] = used[device];
	return true;
}

bool take_memory(int device, size_t bytes)
{
	bool taken;

	lock();
	taken = take_locked(device, bytes);
	unlock();
	return taken;
}

void give_memory(int device, size_t bytes)
{
	lock();
	used[device] -= bytes;
	unlock();
}

int current(void)
{
	return current_device;
}

/* An address range, for which the GPU loses `bytes`. */
hipError_t allocate_range(void **address, size_t room, int device, size_t bytes)
{
	hipError_t code = hipErrorOutOfMemory;
	struct block *block = NULL;

	lock();
	if (bytes <= device_bytes - used[device])
		block = new_block(room);
	if (block) {
		take_locked(device, bytes);
		block->bytes = bytes;
		block->device = device;
		block->next = *bucket_of(block->address);
		*bucket_of(block->address) = block;
		*address = block->address;
		code = hipSuccess;
	}
	unlock();
	return code;
}

static hipError_t allocate(void **address, size_t bytes)
{
	return allocate_range(address, bytes, current_device, bytes);
}

hipError_t hipMemPtrGetInfo(void *address, size_t *bytes)
{
	hipError_t code = hipErrorInvalidValue;

	lock();
	for (struct block *block = *bucket_of(address); block; block = block->next) {
		if (block->address == address) {
			*bytes = block->bytes;
			code = hipSuccess;
		}
	}
	unlock();
	return result(code);
}

/* Not part of HIP: from now on hipMalloc goes on only when this many threads are inside of it; 0 ends that. */
void standin_hip_meet(int threads)
{
	meeting_size = threads;
	if (threads)
		pthread_barrier_init(&meeting, NULL, (unsigned)threads);
}

/* Not part of HIP: from now on every hipMalloc calls this, as if a signal came; NULL ends that. */
void standin_hip_interrupt(void (*by)(void))
{
	visitor = by;
}

/* Asks hipMemGetInfo through the PLT whether there is room, and goes by the answer. */
hipError_t hipMalloc(void **address, size_t bytes)
{
	size_t available = 0;
	hipError_t code;

	if (!address)
		return result(hipErrorInvalidValue);
	if (!bytes) {
		*address = NULL;
		return hipSuccess;
	}
	if (!captures_allow())
		return result(hipErrorStreamCaptureUnsupported);
	if (meeting_size)
		pthread_barrier_wait(&meeting);
	if (visitor)
		visitor();
	code = hipMemGetInfo(&available, NULL);
	if (code == hipSuccess && bytes > available)
		code = hipErrorOutOfMemory;
	return result(code == hipSuccess ? allocate(address, bytes) : code);
}

extern __typeof__(hipMalloc) own_malloc __attribute__((alias("hipMalloc")));

/* Not part of HIP: the most that this copy of the library ever held on the device. */
size_t standin_hip_peak(int device)
{
	size_t bytes;

	lock();
	bytes = peak[device];
	unlock();
	return bytes;
}

hipError_t release(void *address)
{
	hipError_t code = hipErrorInvalidValue;

	lock();
	for (struct block **link = bucket_of(address); *link; link = &(*link)->next) {
		struct block *block = *link;

		if (block->address != address)
			continue;
		*link = block->next;
		used[block->device] -= block->bytes;
		block->next = freed;
		freed = block;
		code = hipSuccess;
		break;
	}
	unlock();
	return code;
}

hipError_t hipFree(void *address)
{
	hipError_t code = check_device(0);

	if (code != hipSuccess || !address)
		return result(code);
	if (getenv("STANDIN_HIP_FAIL_FREE"))
		return result(hipErrorUnknown);
	return result(release_to_pool(address) ? hipSuccess : release(address));
}

hipError_t hipDeviceReset(void)
{
	hipError_t code = check_device(0);

	if (code != hipSuccess || getenv("STANDIN_HIP_RESET_KEEPS"))
		return result(code);
	reset_pools(current_device);
	for (int i = 0; i < BUCKETS; i++) {
		struct block *next;

		for (struct block *block = buckets[i]; block; block = next) {
			next = block->next;
			if (block->device == current_device)
				release(block->address);
		}
	}
	return hipSuccess;
}

/* Not part of HIP: frees in a way that nobody hooks. */
int standin_hip_release(void *address)
{
	return release(address);
}

/* Gets its memory from hipMalloc through the PLT, as HIP 5.2 does. */
hipError_t hipMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
	if (!address || !pitch)
		return result(hipErrorInvalidValue);
	*pitch = (width + PITCH - 1) / PITCH * PITCH;
	return hipMalloc(address, *pitch * height);
}

/* A tail call into the next public function: the return address does not show that the caller is HIP. */
hipError_t hipMemAllocPitch(void **address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	(void)element;
	return hipMallocPitch(address, pitch, width, height);
}

hipError_t hipGetLastError(void)
{
	hipError_t code = last_error;

	last_error = hipSuccess;
	return code;
}

const char *hipGetErrorString(hipError_t code)
{
	switch (code) {
	case hipSuccess:
		return "no error";
	case hipErrorInvalidValue:
		return "invalid argument";
	case hipErrorOutOfMemory:
		return "out of memory";
	case hipErrorNoDevice:
		return "no ROCm-capable device is detected";
	case hipErrorInvalidDevice:
		return "invalid device ordinal";
	default:
		return "unknown error";
	}
}
