/* How much memory all processes of the container hold on each GPU: a file that they share.
 *
 * Every process has a slot of the file and writes only there. What is held is the sum over the slots; there is no total
 * that could go wrong, and no lock that a killed process could keep. To take memory a process first announces it in its
 * slot, then adds up all slots, and keeps it only if the sum is within the limit. Of two processes that race, the one that
 * announced last sees the other's announcement, so together they never pass the limit.
 *
 * A slot belongs to whoever holds the lock on its byte of the file. The kernel drops that lock when the owner's memory
 * goes: at exit, at exec, when it is killed, also while it is still a zombie. A slot without lock is dead, and what
 * it holds is given back when an allocation would fail otherwise, or when somebody asks what is free.
 *
 * The limit is not in the file: nobody can raise it there, and no process takes it over from another. */
#ifndef AMVGPU_REGION_H
#define AMVGPU_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REGION_DEVICES = 64, REGION_PATH_SIZE = 320 };

/* `folder` is one that only the processes of this container share; NULL or empty when there is none. False when there is no
 * memory for a few pages. */
bool region_init(const char *folder);
/* Where the file would be without such a folder: the containers of a pod share /dev/shm, but not their root. */
bool region_default_path(char path[REGION_PATH_SIZE], const char *root);

/* The number by which all processes know the GPU, whatever number it has for HIP; -1 when there are too many, or nothing
 * can be counted now. */
int region_device(uint64_t id);

/* All of these are for this process; a forked child holds nothing. */
bool region_charge(unsigned device, uint64_t bytes, uint64_t limit);
/* For what is held already, whether it fits or not. */
void region_add(unsigned device, uint64_t bytes);
void region_credit(unsigned device, uint64_t bytes);

/* What all processes hold; of processes that have ended within the last moments it may still be contained. */
uint64_t region_used(unsigned device);

#endif
