/* A client: connects, sends messages, and checks the answers. Arguments: host, port, number of the client. */

#include "tutorial.h"

/* Byte `i` of message `round` of a client. */
static uint8_t pattern(int client, int round, int i) { return (uint8_t)(client * 37 + round * 11 + i * 3); }

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    int client = atoi(argv[3]);
    struct rdma_addrinfo *service = resolve(argv[1], argv[2], 0);
    struct ibv_qp_init_attr attr = queues();
    struct rdma_cm_id *id;
    CHECK(rdma_create_ep(&id, service, NULL, &attr) == 0);
    rdma_freeaddrinfo(service);

    static uint8_t out[LENGTH], in[LENGTH];
    struct ibv_mr *out_mr = rdma_reg_msgs(id, out, LENGTH), *in_mr = rdma_reg_msgs(id, in, LENGTH);
    CHECK(out_mr && in_mr);
    /* The receive for the first answer is posted before the peer can send. */
    CHECK(rdma_post_recv(id, NULL, in, LENGTH, in_mr) == 0);
    CHECK(rdma_connect(id, NULL) == 0);

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LENGTH; i++)
            out[i] = pattern(client, round, i);
        CHECK(rdma_post_send(id, NULL, out, LENGTH, out_mr, 0) == 0);
        sent(id);
        struct ibv_wc wc;
        CHECK(rdma_get_recv_comp(id, &wc) == 1);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == LENGTH);
        for (int i = 0; i < LENGTH; i++)
            CHECK(in[i] == (uint8_t)~pattern(client, round, i));
        if (round + 1 < ROUNDS)
            CHECK(rdma_post_recv(id, NULL, in, LENGTH, in_mr) == 0);
    }

    CHECK(rdma_disconnect(id) == 0);
    CHECK(rdma_dereg_mr(out_mr) == 0 && rdma_dereg_mr(in_mr) == 0);
    rdma_destroy_ep(id);
    printf("client %d: %d answers\n", client, ROUNDS);
    return 0;
}
