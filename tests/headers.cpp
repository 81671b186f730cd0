// A program to precompile headers.h for: what it is compiled with is what tests are compiled with.
int main() {}
