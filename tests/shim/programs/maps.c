/* Shows what is mapped into this process. */
#include <stdio.h>

int main(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int byte;

	while (maps && (byte = getc(maps)) != EOF)
		putchar(byte);
	return maps ? 0 : 1;
}
