/* A library whose constructor reads the environment, as GPU runtimes do. */
#include <stdlib.h>

const char *early_value(void);

static const char *value = "";

__attribute__((constructor)) static void read_early(void)
{
	const char *found = getenv("HSA_CU_MASK");

	value = found ? found : "(unset)";
}

const char *early_value(void)
{
	return value;
}
