// Prints the device list and its length, which is not set before.
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void) {
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    printf("%p %d\n", (void *)list, count);
}
