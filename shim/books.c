/* See books.h. */
#include "books.h"

#include "devices.h"
#include "ledger.h"
#include "limit.h"
#include "nest.h"
#include "pools.h"
#include "region.h"

bool books_open(void)
{
	return region_init(limit_region_folder()) && devices_init() && ledger_init() && pools_init() && nest_init();
}
