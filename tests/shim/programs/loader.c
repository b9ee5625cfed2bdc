/* Loads a plugin and calls its run(): loader <plugin> now|lazy|deepbind|namespace */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *load(const char *plugin, const char *how)
{
	if (strcmp(how, "now") == 0)
		return dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
	if (strcmp(how, "lazy") == 0)
		return dlopen(plugin, RTLD_LAZY | RTLD_LOCAL);
	if (strcmp(how, "deepbind") == 0)
		return dlopen(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	return dlmopen(LM_ID_NEWLM, plugin, RTLD_NOW);
}

int main(int argc, char **argv)
{
	void *plugin = argc == 3 ? load(argv[1], argv[2]) : NULL;
	void (*run)(void) = plugin ? (void (*)(void))dlsym(plugin, "run") : NULL;

	if (!run) {
		fprintf(stderr, "loader: %s\n", dlerror());
		return EXIT_FAILURE;
	}
	run();
	return EXIT_SUCCESS;
}
