// rnbdctl: the command line for both daemons.
#include <iostream>

#include "rnbdctl/run.h"

int main(int argc, char** argv) { return rnbd::run_rnbdctl(argc, argv, std::cout, std::cerr); }
