// arrays.c: touches every page of arrays of its own and of a library's (shelf.c), for tests of who names them. It
// prints its process id, and where one variable of its own and one of the library lie.
#include <stdio.h>
#include <unistd.h>

enum { page = 4096 };

__attribute__((aligned(4096))) char plain_zeros[40 * page];
__attribute__((aligned(4096))) char plain_values[24 * page] = {1};
__attribute__((aligned(4096))) const char plain_constants[48 * page] = {2};
__attribute__((used)) static char own_zeros[20 * page];
int small_value = 5;

const char * shelf_where(void); // where its shelf_values lie; using the variable itself would copy it into this program
int shelf_touch(void);

__attribute__((noinline)) void write_pages(char * at, int n) {
    for (int i = 0; i < n; i++) {
        ((volatile char *) at)[i * page] = 3;
    }
}

__attribute__((noinline)) int read_pages(const char * at, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += ((const volatile char *) at)[i * page];
    }
    return sum;
}

int main(void) {
    printf("%d %lx %lx\n", (int) getpid(), (unsigned long) &small_value, (unsigned long) shelf_where());
    fflush(stdout);
    write_pages(plain_zeros, 40);
    write_pages(plain_values, 24);
    write_pages(own_zeros, 20);
    return read_pages(plain_constants, 48) + shelf_touch() + small_value == 9 ? 7 : 1;
}
