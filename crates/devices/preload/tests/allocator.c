// An allocator that looks for a file of the kernel, as mimalloc does. Returns how deep its calls are nested.
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);

static int depth, deepest;

void *malloc(size_t size) {
    depth++;
    deepest = depth > deepest ? depth : deepest;
    if (depth == 1) {
        access("/sys/devices/system/node/node999", F_OK);
    }
    depth--;
    return __libc_malloc(size);
}

int main(void) {
    void *volatile memory = malloc(1);
    free(memory);
    return deepest;
}
