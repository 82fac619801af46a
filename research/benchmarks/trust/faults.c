/* Faults at chosen system calls: a library for LD_PRELOAD that counts the calls which change files below one folder,
   in all processes that share its control block, and at the k-th call of a kind kills or refuses.

   The control block is a file named by VCRT_FAULTS, mapped by every process; struct control is its layout, and
   fault_injection.py writes the same one. Calls that libc makes by itself are not seen; neither Python, SQLite, Arrow
   nor safetensors leaves the writing of files to those. */

#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE, WRITE, FSYNC, RENAME, REMOVE, MODE, KINDS };
enum action { NOTHING, KILL_ALL, KILL_CALLER, TEAR_AND_KILL_ALL, FAIL_ONCE, FAIL_FROM_THEN_ON };

#define LOG_BYTES (8 << 20)

struct control {
    int32_t armed, kinds, action, error; /* kinds: a bit for each kind that is struck */
    int64_t at;                          /* strikes at this call, from 1, of those kinds together */
    _Atomic int64_t struck, seen;        /* calls that were struck; calls of those kinds so far */
    _Atomic int64_t counts[KINDS];
    _Atomic int64_t log_used;
    char folder[4096];
    char log[LOG_BYTES]; /* lines: kind, tab, path, or two paths for a rename */
};

static struct control *control;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("VCRT_FAULTS");
    if (name == NULL) return;
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0);
    if (descriptor < 0) return;
    void *memory = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    syscall(SYS_close, descriptor);
    if (memory != MAP_FAILED) control = memory;
}

/* The absolute path of a call's file, or "" if it cannot be told. */
static void path_at(int directory, const char *name, char *path) {
    char base[PATH_MAX] = "", link[64];
    path[0] = 0;
    if (name == NULL) return;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (directory == AT_FDCWD) {
        if (getcwd(base, sizeof base) == NULL) return;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return;
        base[length] = 0;
    }
    if (strlen(base) + strlen(name) + 2 > PATH_MAX) return;
    strcat(strcat(strcpy(path, base), "/"), name);
}

static void path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static int is_ours(const char *path) {
    size_t length = strlen(control->folder);
    return length > 0 && strncmp(path, control->folder, length) == 0 &&
           (path[length] == '/' || path[length] == 0);
}

static void note(enum kind kind, const char *path, const char *other) {
    static const char names[KINDS] = {'c', 'w', 's', 'r', 'd', 'm'};
    char line[2 * PATH_MAX + 8];
    int length = snprintf(line, sizeof line, other ? "%c\t%s\t%s\n" : "%c\t%s\n", names[kind], path, other);
    int64_t place = atomic_fetch_add(&control->log_used, length);
    if (place + length <= LOG_BYTES) memcpy(control->log + place, line, length);
}

/* What is to be done with this call: NOTHING, TEAR_AND_KILL_ALL, or to fail with control->error. */
static enum action strike(enum kind kind, const char *path, const char *other) {
    if (control == NULL || !control->armed || !(is_ours(path) || (other && is_ours(other)))) return NOTHING;
    note(kind, path, other);
    atomic_fetch_add(&control->counts[kind], 1);
    if (!(control->kinds >> kind & 1)) return NOTHING;
    int64_t place = atomic_fetch_add(&control->seen, 1) + 1;
    int later = control->action == FAIL_FROM_THEN_ON && place > control->at;
    if (control->action == NOTHING || (place != control->at && !later)) return NOTHING;
    atomic_fetch_add(&control->struck, 1);
    if (control->action == KILL_ALL) syscall(SYS_kill, 0, SIGKILL);
    if (control->action == KILL_CALLER) syscall(SYS_kill, getpid(), SIGKILL);
    return control->action;
}

static int fails(enum action action) {
    if (action != FAIL_ONCE && action != FAIL_FROM_THEN_ON) return 0;
    errno = control->error;
    return 1;
}

/* Like the next library's function; found once. */
#define NEXT(name) \
    static __typeof__(&name) next; \
    if (next == NULL) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WITH_PATH(kind, directory, name, other_directory, other_name) \
    enum action action = NOTHING; \
    if (control != NULL && control->armed) { \
        int kept = errno; \
        char path[PATH_MAX], other[PATH_MAX] = ""; \
        const char *second = other_name; \
        path_at(directory, name, path); \
        if (second) path_at(other_directory, second, other); \
        errno = kept; \
        action = strike(kind, path, second ? other : NULL); \
    } \
    if (action == TEAR_AND_KILL_ALL) syscall(SYS_kill, 0, SIGKILL); \
    if (fails(action)) return -1

#define WITH_DESCRIPTOR(kind, descriptor) \
    enum action action = NOTHING; \
    if (control != NULL && control->armed) { \
        int kept = errno; \
        char path[PATH_MAX]; \
        path_of(descriptor, path); \
        errno = kept; \
        action = strike(kind, path, NULL); \
    }

/* A file is made, emptied, or opened to be written to. */
#define CHANGES(flags) (((flags) & (O_CREAT | O_TRUNC)) || ((flags) & O_ACCMODE) != O_RDONLY)
#define OPENS(name, directory, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        NEXT(name); \
        if (CHANGES(flags)) { \
            WITH_PATH(CREATE, directory, file, 0, NULL); \
        } \
        return next arguments; \
    }

OPENS(open, AT_FDCWD, (const char *file, int flags, ...), (file, flags, mode))
OPENS(open64, AT_FDCWD, (const char *file, int flags, ...), (file, flags, mode))
OPENS(openat, at, (int at, const char *file, int flags, ...), (at, file, flags, mode))
OPENS(openat64, at, (int at, const char *file, int flags, ...), (at, file, flags, mode))

#define ON_PATH(kind, name, at, path, parameters, arguments) \
    int name parameters { \
        NEXT(name); \
        WITH_PATH(kind, at, path, 0, NULL); \
        return next arguments; \
    }

ON_PATH(CREATE, creat, AT_FDCWD, file, (const char *file, mode_t mode), (file, mode))
ON_PATH(CREATE, creat64, AT_FDCWD, file, (const char *file, mode_t mode), (file, mode))
ON_PATH(CREATE, mkdir, AT_FDCWD, file, (const char *file, mode_t mode), (file, mode))
ON_PATH(CREATE, mkdirat, at, file, (int at, const char *file, mode_t mode), (at, file, mode))
ON_PATH(CREATE, truncate, AT_FDCWD, file, (const char *file, off_t size), (file, size))
ON_PATH(REMOVE, unlink, AT_FDCWD, file, (const char *file), (file))
ON_PATH(REMOVE, unlinkat, at, file, (int at, const char *file, int flags), (at, file, flags))
ON_PATH(REMOVE, rmdir, AT_FDCWD, file, (const char *file), (file))
ON_PATH(REMOVE, remove, AT_FDCWD, file, (const char *file), (file))
ON_PATH(MODE, chmod, AT_FDCWD, file, (const char *file, mode_t mode), (file, mode))
ON_PATH(MODE, fchmodat, at, file, (int at, const char *file, mode_t mode, int flags), (at, file, mode, flags))

#define ON_TWO_PATHS(name, at, path, to_at, to_path, parameters, arguments) \
    int name parameters { \
        NEXT(name); \
        WITH_PATH(RENAME, at, path, to_at, to_path); \
        return next arguments; \
    }

ON_TWO_PATHS(rename, AT_FDCWD, from, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_TWO_PATHS(link, AT_FDCWD, from, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_TWO_PATHS(renameat, at, from, to_at, to, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to))
ON_TWO_PATHS(renameat2, at, from, to_at, to, (int at, const char *from, int to_at, const char *to, unsigned flags),
             (at, from, to_at, to, flags))

#define ON_DESCRIPTOR(kind, name, descriptor, parameters, arguments) \
    int name parameters { \
        NEXT(name); \
        WITH_DESCRIPTOR(kind, descriptor); \
        if (action == TEAR_AND_KILL_ALL) syscall(SYS_kill, 0, SIGKILL); \
        if (fails(action)) return -1; \
        return next arguments; \
    }

ON_DESCRIPTOR(FSYNC, fsync, descriptor, (int descriptor), (descriptor))
ON_DESCRIPTOR(FSYNC, fdatasync, descriptor, (int descriptor), (descriptor))
ON_DESCRIPTOR(MODE, fchmod, descriptor, (int descriptor, mode_t mode), (descriptor, mode))
ON_DESCRIPTOR(WRITE, ftruncate, descriptor, (int descriptor, off_t size), (descriptor, size))
ON_DESCRIPTOR(WRITE, ftruncate64, descriptor, (int descriptor, off64_t size), (descriptor, size))
ON_DESCRIPTOR(WRITE, fallocate, descriptor, (int descriptor, int mode, off_t start, off_t size),
              (descriptor, mode, start, size))
ON_DESCRIPTOR(WRITE, fallocate64, descriptor, (int descriptor, int mode, off64_t start, off64_t size),
              (descriptor, mode, start, size))

/* A torn write, and the last one on a full disk, write a half. */
#define WRITES(name, parameters, whole, half, size) \
    ssize_t name parameters { \
        NEXT(name); \
        WITH_DESCRIPTOR(WRITE, descriptor); \
        if (action == TEAR_AND_KILL_ALL) { \
            if ((size) > 1) (void)!(half); \
            syscall(SYS_kill, 0, SIGKILL); \
        } \
        if (action == FAIL_FROM_THEN_ON && control->error == ENOSPC && control->seen == control->at && (size) > 1) \
            return half; \
        if (fails(action)) return -1; \
        return whole; \
    }

WRITES(write, (int descriptor, const void *data, size_t size), next(descriptor, data, size),
       next(descriptor, data, size / 2), size)
WRITES(pwrite, (int descriptor, const void *data, size_t size, off_t place), next(descriptor, data, size, place),
       next(descriptor, data, size / 2, place), size)
WRITES(pwrite64, (int descriptor, const void *data, size_t size, off64_t place), next(descriptor, data, size, place),
       next(descriptor, data, size / 2, place), size)
WRITES(writev, (int descriptor, const struct iovec *parts, int count), next(descriptor, parts, count),
       next(descriptor, parts, count / 2), count)
WRITES(pwritev, (int descriptor, const struct iovec *parts, int count, off_t place),
       next(descriptor, parts, count, place), next(descriptor, parts, count / 2, place), count)
ssize_t copy_file_range(int from, off64_t *from_place, int descriptor, off64_t *place, size_t size, unsigned flags) {
    NEXT(copy_file_range);
    WITH_DESCRIPTOR(WRITE, descriptor);
    if (action == TEAR_AND_KILL_ALL) syscall(SYS_kill, 0, SIGKILL);
    if (fails(action)) return -1;
    return next(from, from_place, descriptor, place, size, flags);
}
ssize_t sendfile(int descriptor, int from, off_t *place, size_t size) {
    NEXT(sendfile);
    WITH_DESCRIPTOR(WRITE, descriptor);
    if (action == TEAR_AND_KILL_ALL) syscall(SYS_kill, 0, SIGKILL);
    if (fails(action)) return -1;
    return next(descriptor, from, place, size);
}
