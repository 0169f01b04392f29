// Memory of a program whose pages are shared with peers: an owner that registers, and a requester in another process.
#define _GNU_SOURCE
#include "verbs.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAGE 4096u
#define LENGTH (16 * PAGE)

struct word {
    uint64_t addr;
    uint32_t rkey, value;
};

static int is_owner, channel_fd, is_switched_off;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void tell(uint64_t addr, uint32_t rkey, uint32_t value) {
    struct word word = {addr, rkey, value};
    CHECK(write(channel_fd, &word, sizeof word) == sizeof word);
}

static struct word hear(void) {
    struct word word;
    CHECK(read(channel_fd, &word, sizeof word) == sizeof word);
    return word;
}

// Both processes have come here.
static void meet(void) {
    tell(0, 0, 0);
    hear();
}

// Replaces the queue pairs by new ones.
static void connect_both(void) {
    if (qp)
        CHECK(ibv_destroy_qp(qp) == 0);
    qp = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(qp);
    tell(0, 0, qp->qp_num);
    connect_qp(qp, hear().value);
    meet();
}

static enum ibv_wc_status execute(enum ibv_wr_opcode opcode, uint32_t length, uint64_t addr, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)buffer, length, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = addr, wr.wr.atomic.rkey = rkey, wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = addr, wr.wr.rdma.rkey = rkey;
    }
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    return next_completion(cq).status;
}

static void write_bytes(struct word to, uint32_t offset, uint32_t length, int byte) {
    memset(buffer, byte, length);
    CHECK(execute(IBV_WR_RDMA_WRITE, length, to.addr + offset, to.rkey) == IBV_WC_SUCCESS);
}

static void expect_bytes(struct word from, uint32_t offset, uint32_t length, int byte) {
    CHECK(execute(IBV_WR_RDMA_READ, length, from.addr + offset, from.rkey) == IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < length; i++)
        CHECK(buffer[i] == byte);
}

static void expect_filled(const volatile char *bytes, size_t length, int byte) {
    for (size_t i = 0; i < length; i++)
        CHECK(bytes[i] == byte);
}

// Returns how the page at an address is mapped: 's' or 'p' if its file is one of shared pages, '-' if not.
static char kind_of(const void *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], kind = '?', permissions[8];
    unsigned long from, to;
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, permissions) == 3 && from <= (uintptr_t)at && (uintptr_t)at < to)
            kind = strstr(line, "/memfd:adverb-pages") ? permissions[3] : '-';
    fclose(maps);
    return kind;
}

static void expect_shared(const void *at) {
    char kind = kind_of(at);
    CHECK(is_switched_off ? kind != 's' : kind == 's');
}

static char *map_memory(size_t length, int byte) {
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, byte, length);
    return memory;
}

static struct ibv_mr *offer(void *at, size_t length) {
    struct ibv_mr *region = ibv_reg_mr(pd, at, length, ALL_ACCESS);
    CHECK(region);
    tell((uintptr_t)at, region->rkey, 0);
    return region;
}

// All operations reach shared pages. These keep their contents when they are registered, and when the last region on them
// is deregistered.
static void test_operations(void) {
    connect_both();
    if (is_owner) {
        char *memory = map_memory(LENGTH, 1);
        struct ibv_mr *whole = offer(memory, LENGTH);
        expect_shared(memory);
        expect_filled(memory, LENGTH, 1);
        struct ibv_mr *part = offer(memory + 100, 5000);
        meet();
        expect_filled(memory + 8, 100, 2);
        expect_filled(memory + 108, 50, 3);
        CHECK(*(uint64_t *)(memory + LENGTH - 8) == 0x0101010101010106);
        memset(memory + 200, 4, 64);
        meet();
        meet();
        CHECK(ibv_dereg_mr(whole) == 0);
        expect_shared(memory);
        meet();
        meet();
        CHECK(ibv_dereg_mr(part) == 0);
        CHECK(kind_of(memory) != 's');
        expect_filled(memory + 200, 64, 4);
        expect_filled(memory + 8, 100, 2);
        meet();
        meet();
        CHECK(munmap(memory, LENGTH) == 0);
    } else {
        struct word whole = hear(), part = hear();
        write_bytes(whole, 8, 100, 2);
        write_bytes(part, 8, 50, 3);
        CHECK(execute(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, whole.addr + LENGTH - 8, whole.rkey) == IBV_WC_SUCCESS);
        CHECK(*(uint64_t *)buffer == 0x0101010101010101);
        meet();
        meet();
        expect_bytes(whole, 200, 64, 4);
        meet();
        meet();
        expect_bytes(part, 100, 64, 4);
        meet();
        meet();
        CHECK(execute(IBV_WR_RDMA_WRITE, 8, part.addr, part.rkey) == IBV_WC_REM_ACCESS_ERR);
        meet();
    }
}

// Pages that are private again are shared again, and read as zeros after their contents were given up.
static void test_again(void) {
    connect_both();
    if (!is_owner) {
        struct word memory = hear();
        write_bytes(memory, 0, 64, 6);
        meet();
        return;
    }
    char *memory = map_memory(LENGTH, 1);
    struct ibv_mr *region = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
    CHECK(region && ibv_dereg_mr(region) == 0);
    expect_filled(memory, LENGTH, 1);
    region = offer(memory, LENGTH);
    expect_shared(memory);
    meet();
    expect_filled(memory, 64, 6);
    CHECK(ibv_dereg_mr(region) == 0);
    expect_filled(memory, 64, 6);
    expect_filled(memory + 64, LENGTH - 64, 1);
    CHECK(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
    expect_filled(memory, LENGTH, 0);
    CHECK(munmap(memory, LENGTH) == 0);
}

// The child of a fork has a copy, made at the time of the fork.
static void test_fork(void) {
    connect_both();
    if (!is_owner) {
        struct word memory = hear();
        write_bytes(memory, 64, 64, 9);
        expect_bytes(memory, 0, 64, 8);
        meet();
        return;
    }
    char *memory = map_memory(LENGTH, 7), *moved = map_memory(PAGE, 0);
    struct ibv_mr *region = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
    CHECK(region);
    expect_shared(memory);
    CHECK(mprotect(memory + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(mremap(memory + LENGTH - PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(kind_of(memory) != 's' && kind_of(moved) != 's');
        CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0);
        // The parent and its peer have written.
        expect_filled(memory, PAGE, 7);
        expect_filled(moved, PAGE, 7);
        memset(memory, 1, PAGE);
        memset(moved, 1, PAGE);
        CHECK(mprotect(memory + PAGE, PAGE, PROT_READ) == 0);
        expect_filled(memory + PAGE, PAGE, 7);
        exit(0);
    }
    memset(memory, 8, 64);
    tell((uintptr_t)memory, region->rkey, 0);
    meet();
    CHECK(close(ends[1]) == 0 && close(ends[0]) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect_filled(memory, 64, 8);
    expect_filled(memory + 64, 64, 9);
    expect_filled(memory + 128, PAGE - 128, 7);
    expect_filled(moved, PAGE, 7);
    // What was moved is private after the region, too.
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(kind_of(moved) != 's');
    expect_filled(moved, PAGE, 7);
    CHECK(munmap(moved, PAGE) == 0 && munmap(memory, LENGTH - PAGE) == 0);
    CHECK(system("exit 3") == 3 << 8);
}

static void *register_once(void *memory) {
    struct ibv_mr *region = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
    CHECK(region && ibv_dereg_mr(region) == 0);
    return NULL;
}

static void test_small_stack(void) {
    char *memory = map_memory(LENGTH, 7);
    pthread_attr_t attr;
    pthread_t thread;
    CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 32 << 10) == 0);
    CHECK(pthread_create(&thread, &attr, register_once, memory) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(munmap(memory, LENGTH) == 0);
}

// A child that has no descriptor to find its shared pages ends, and does not write to the parent's.
static void test_fork_without_descriptors(void) {
    if (!is_owner)
        return;
    char *memory = map_memory(LENGTH, 7);
    struct ibv_mr *region = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
    struct rlimit limit, none;
    CHECK(region && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        memset(memory, 1, LENGTH);
        _exit(0);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(is_switched_off ? status == 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    expect_filled(memory, LENGTH, 7);
    CHECK(ibv_dereg_mr(region) == 0 && munmap(memory, LENGTH) == 0);
}

// Other memory at the address of a region: its new region reaches it, and the old region does not.
static void test_unmapped(void) {
    connect_both();
    if (!is_owner) {
        struct word old = hear(), new = hear();
        write_bytes(new, 0, 64, 3);
        meet();
        execute(IBV_WR_RDMA_WRITE, 64, old.addr + PAGE, old.rkey);
        meet();
        return;
    }
    char *memory = map_memory(LENGTH, 1);
    struct ibv_mr *old = offer(memory, LENGTH);
    CHECK(munmap(memory, LENGTH) == 0);
    char *other = mmap(memory, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(other == memory);
    memset(other, 2, LENGTH);
    struct ibv_mr *new = offer(other, LENGTH);
    CHECK(kind_of(other) != 's');
    meet();
    expect_filled(other, 64, 3);
    meet();
    if (!is_switched_off)
        expect_filled(other + PAGE, 64, 2);
    CHECK(ibv_dereg_mr(old) == 0);
    expect_filled(other, 64, 3);
    CHECK(ibv_dereg_mr(new) == 0);
    CHECK(munmap(other, LENGTH) == 0);
}

static void *wait_for_byte(void *fd) {
    char byte;
    CHECK(read(*(int *)fd, &byte, 1) == 1);
    return NULL;
}

static void expect_reached_by_address(void *at, size_t length) {
    struct ibv_mr *region = offer(at, length);
    CHECK(kind_of(at) != 's');
    meet();
    expect_filled(at, 64, 5);
    CHECK(ibv_dereg_mr(region) == 0);
}

// Memory whose pages must not be exchanged is reached by its address.
static void test_not_shared(void) {
    connect_both();
    if (!is_owner) {
        for (int i = 0; i < 7; i++) {
            write_bytes(hear(), 0, 64, 5);
            meet();
        }
        return;
    }
    char *memory = map_memory(LENGTH, 1), local[8192];
    expect_reached_by_address(memory + 8, LENGTH - 8);
    expect_reached_by_address(local, sizeof local);
    expect_reached_by_address((char *)(((uintptr_t)local + PAGE) & -(uintptr_t)PAGE), PAGE);
    char *file = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect_reached_by_address(file, LENGTH);
    CHECK(mlock(memory, PAGE) == 0);
    expect_reached_by_address(memory, LENGTH);
    CHECK(munlock(memory, PAGE) == 0);
    int ends[2];
    pthread_t thread;
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, wait_for_byte, &ends[0]) == 0);
    expect_reached_by_address(memory, LENGTH);
    CHECK(write(ends[1], "", 1) == 1 && pthread_join(thread, NULL) == 0);
    // A region that is reached by its address, and one that begins on the same page.
    struct ibv_mr *region = ibv_reg_mr(pd, memory + 8, PAGE, ALL_ACCESS);
    expect_reached_by_address(memory, LENGTH);
    CHECK(region && ibv_dereg_mr(region) == 0);
    CHECK(munmap(memory, LENGTH) == 0 && munmap(file, LENGTH) == 0);
}

// A program that closes all descriptors has its region reached by address.
static void test_closed_descriptors(void) {
    connect_both();
    if (!is_owner) {
        struct word memory = hear();
        write_bytes(memory, 0, 64, 5);
        meet();
        return;
    }
    char *memory = map_memory(LENGTH, 1);
    struct ibv_mr *region = ibv_reg_mr(pd, memory, LENGTH, ALL_ACCESS);
    for (int fd = 700; fd < 1024; fd++) {
        char path[64], target[128] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "adverb-pages")) {
            int other = open("/dev/null", O_RDWR | O_CLOEXEC);
            CHECK(dup2(other, fd) == fd && close(other) == 0);
        }
    }
    CHECK(region);
    tell((uintptr_t)memory, region->rkey, 0);
    meet();
    expect_filled(memory, 64, 5);
    CHECK(ibv_dereg_mr(region) == 0);
    expect_filled(memory, 64, 5);
    expect_filled(memory + 64, PAGE, 1);
}

int main(void) {
    int ends[2];
    const char *way = getenv("ADVERB_MEMORY");
    is_switched_off = way && strcmp(way, "process_vm") == 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t owner = fork();
    CHECK(owner >= 0);
    is_owner = owner == 0;
    channel_fd = ends[is_owner];
    close(ends[!is_owner]);
    open_first();
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(cq);
    test_operations();
    test_again();
    test_fork();
    test_small_stack();
    test_fork_without_descriptors();
    test_unmapped();
    test_not_shared();
    test_closed_descriptors();
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    close_all();
    int status = 0;
    CHECK(is_owner || (waitpid(owner, &status, 0) == owner && status == 0));
    return 0;
}
