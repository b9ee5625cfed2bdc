/* See handles.h. */
#include "handles.h"

#include <stddef.h>

void handles_begin_release(struct handle_release *release, const void *handle)
{
	struct allocation before;

	release->handle = handle;
	release->known = ledger_look_up(handle, &before);
	release->was_last = ledger_let_go(handle, &release->last);
}

int handles_end_release(const struct handle_release *release, int code)
{
	if (code != 0 && release->was_last)
		ledger_put_back(&release->last);
	else if (code != 0 && release->known)
		ledger_hold(release->handle);
	else if (release->was_last)
		ledger_credit(&release->last);
	return code;
}

void handles_mapped(const void *address, uint64_t bytes, const void *handle, uint8_t copy)
{
	struct allocation mapped = {
		.address = address, .owner = handle, .pooled = bytes, .copy = copy, .kind = KIND_MAPPED};
	struct allocation found;

	if (!ledger_look_up(handle, &found) || !ledger_reserve_held(found.device, 0))
		return;
	mapped.device = found.device;
	ledger_hold(handle);
	ledger_commit(&mapped);
}

static void drop(const struct allocation *mapped)
{
	struct allocation last;

	if (ledger_let_go(mapped->owner, &last))
		ledger_credit(&last);
	ledger_credit(mapped);
}

void handles_unmapped(const void *address, uint64_t bytes)
{
	struct allocation mapped;
	uint64_t done = 0;

	while (done < bytes && ledger_look_up((const char *)address + done, &mapped) && mapped.kind == KIND_MAPPED &&
	       ledger_take(mapped.address, &mapped)) {
		done += mapped.pooled;
		drop(&mapped);
	}
}

void handles_imported(const void *handle)
{
	struct allocation stale;

	if (handle && ledger_take(handle, &stale))
		ledger_credit(&stale);
}
