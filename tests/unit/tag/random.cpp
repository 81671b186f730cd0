// Random operations on the matcher, with and without a simulated device, against a naive model.
//
//   tag_random [OPERATIONS [SEED]]     shared among the device list lengths; default 400000
//
// Ends with 1 at the first difference, and prints the seed. It also leaves the hand-over rule out
// of the simulated device, and expects to see it.
#include "tests/unit/tag/random_run.h"

int main(int count, char** arguments) {
    return rtrs::random_main<rtrs::SimTagDevice>(count, arguments, {std::nullopt, 0, 1, 4, 64});
}
