// Children that use and end their copies of everything do not disturb their parent's connections. With an argument, the
// program becomes a daemon first.
#include "verbs.h"
#include <dirent.h>
#include <sys/wait.h>

static struct ibv_cq *cq;
static struct ibv_qp *a, *b;

// Sends a message to the program itself, and reads it back.
static void exchange(void) {
    struct ibv_send_wr *bad;
    memset(buffer, 'p', 4096), memset(buffer + 8192, 0, 8192);
    post_recv(b, 1, 8192, 4096);
    struct ibv_sge from = {(uintptr_t)buffer, 4096, mr->lkey}, into = {(uintptr_t)buffer + 12288, 4096, mr->lkey};
    struct ibv_send_wr read = {.sg_list = &into, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
    read.wr.rdma.remote_addr = (uintptr_t)buffer + 8192, read.wr.rdma.rkey = mr->rkey;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .next = &read};
    CHECK(ibv_post_send(a, &send, &bad) == 0);
    CHECK(next_completion(cq).status == IBV_WC_SUCCESS && next_completion(cq).status == IBV_WC_SUCCESS);
    CHECK(memcmp(buffer, buffer + 8192, 4096) == 0 && memcmp(buffer, buffer + 12288, 4096) == 0);
}

static void destroy_all(void) {
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(cq) == 0);
    close_all();
}

static void exit_only(void) {}

static void write_memory(void) {
    memset(buffer, 'c', SIZE);
    _exit(0);
}

static void open_own(void) {
    open_first();
    close_all();
}

static void execute(void) {
    execlp("ibv_devices", "ibv_devices", NULL);
    execlp("true", "true", NULL);
}

static void crash(void) {
    close(2);
    abort();
}

static void list_devices(void) {
    DIR *directory = opendir("/sys/class/infiniband");
    CHECK(directory && readdir(directory) && closedir(directory) == 0);
}

static void *list_and_create(void *unused) {
    (void)unused;
    for (;; pthread_testcancel()) {
        list_devices();
        CHECK(ibv_destroy_qp(make_qp(IBV_QPT_RC, cq, NULL)) == 0);
    }
}

// A thread holds locks at most times. The children do not have it, and do not wait for it.
static int fork_with_thread(void) {
    pthread_t thread;
    open_first();
    cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    list_devices(); // The loader's lock, which is held at the first call, is inherited.
    CHECK(pthread_create(&thread, NULL, list_and_create, NULL) == 0);
    for (int i = 0; i < 60; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            list_devices();
            open_own();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    close_all();
    puts("done");
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "threads") == 0)
        return fork_with_thread();
    CHECK(ibv_fork_init() == 0);
    CHECK(argc == 1 || daemon(1, 1) == 0);
    open_first();
    cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    a = make_qp(IBV_QPT_RC, cq, NULL), b = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(a), to_init(b);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    exchange();
    void (*children[])(void) = {exit_only, write_memory, destroy_all, open_own, execute, crash};
    for (unsigned i = 0; i < sizeof children / sizeof *children; i++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            children[i]();
            exit(0);
        }
        exchange();
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(children[i] == crash ? WIFSIGNALED(status) : status == 0);
        exchange();
    }
    CHECK(system("exit 3") == 3 << 8);
    pid_t child = vfork();
    if (child == 0) {
        execlp("true", "true", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    exchange();
    destroy_all();
    puts("done");
    return 0;
}
