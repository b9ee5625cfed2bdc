/* What kind of program is about to be started. Nothing here changes anything or needs memory. */
#ifndef AMVGPU_EXEC_TARGET_H
#define AMVGPU_EXEC_TARGET_H

enum exec_target {
	TARGET_ORDINARY,   /* also when it cannot be told: the start will then fail by itself */
	TARGET_PRIVILEGED, /* runs as somebody else; the loader lets no environment near it */
	TARGET_STATIC,     /* has no loader, so no library can be brought into it */
};

/* As for execveat. */
enum exec_target exec_target(int folder, const char *path, int flags);
/* As for execvp: a name without a slash is looked for along PATH, which is read from `environment`. */
enum exec_target exec_target_by_name(const char *name, char *const environment[]);

#endif
