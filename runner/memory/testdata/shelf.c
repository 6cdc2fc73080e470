// shelf.c: the library of arrays.c.
enum { page = 4096 };

__attribute__((aligned(4096))) char shelf_zeros[30 * page];
__attribute__((aligned(4096))) char shelf_values[10 * page] = {1};
__attribute__((aligned(4096))) const char shelf_constants[50 * page] = {2};
__attribute__((aligned(4096))) static char shelf_hidden[12 * page];

const char * shelf_where(void) { return shelf_values; }

static void write_shelf(char * at, int n) {
    for (int i = 0; i < n; i++) {
        ((volatile char *) at)[i * page] = 3;
    }
}

int shelf_touch(void) {
    write_shelf(shelf_zeros, 30);
    write_shelf(shelf_values, 10);
    write_shelf(shelf_hidden, 12);
    int sum = 0;
    for (int i = 0; i < 50; i++) {
        sum += ((const volatile char *) shelf_constants)[i * page];
    }
    return sum;
}
