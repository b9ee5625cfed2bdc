/* The HSA runtime's virtual memory management, which is what HIP's is made of; hsa_amd_vmem_handle_create is in hooks_hsa.c. */
#include "handles.h"
#include "hsa_table.h"


int hook_hsa_amd_vmem_handle_release(struct hsa_copy *hsa, uint64_t handle)
{
	struct handle_release release;

	handles_begin_release(&release, (const void *)handle);
	return handles_end_release(&release, hsa->real.hsa_amd_vmem_handle_release(handle));
}

int hook_hsa_amd_vmem_map(struct hsa_copy *hsa, void *address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	int code = hsa->real.hsa_amd_vmem_map(address, bytes, offset, handle, flags);

	if (code == HSA_SUCCESS)
		handles_mapped(address, bytes, (const void *)handle, ALLOCATION_BELOW_HIP);
	return code;
}

int hook_hsa_amd_vmem_unmap(struct hsa_copy *hsa, void *address, size_t bytes)
{
	int code = hsa->real.hsa_amd_vmem_unmap(address, bytes);

	if (code == HSA_SUCCESS)
		handles_unmapped(address, bytes);
	return code;
}

int hook_hsa_amd_vmem_retain_alloc_handle(struct hsa_copy *hsa, uint64_t *handle, void *address)
{
	int code = hsa->real.hsa_amd_vmem_retain_alloc_handle(handle, address);

	if (code == HSA_SUCCESS && handle && *handle)
		ledger_hold((const void *)*handle);
	return code;
}

/* Whoever made the memory is charged for it. */
int hook_hsa_amd_vmem_import_shareable_handle(struct hsa_copy *hsa, int fd, uint64_t *handle)
{
	int code = hsa->real.hsa_amd_vmem_import_shareable_handle(fd, handle);

	if (code == HSA_SUCCESS && handle)
		handles_imported((const void *)*handle);
	return code;
}
