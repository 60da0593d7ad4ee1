// SPDX-License-Identifier: Apache-2.0
// Ends the job from its last rank while the others wait for ever: mpirun -n 3 test_abort CODE. CMakeLists.txt checks
// the code that the shell sees, and that what was written before is shown.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "comm/communicator.hpp"
#include "comm/environment.hpp"

int main(int argc, char** argv) {
  const penstock::MpiEnvironment environment{&argc, &argv};
  int code = 1;
  if (argc > 1) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), code);
  const auto world = penstock::Communicator::world();
  if (world.rank() == world.size() - 1) {
    std::fputs("written before the end", stdout);
    penstock::MpiEnvironment::abort(static_cast<penstock::ExitCode>(code));
  }
  world.barrier();
}
