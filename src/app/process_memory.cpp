// SPDX-License-Identifier: Apache-2.0
#include "app/process_memory.hpp"

#include <sys/resource.h>

namespace penstock {

Bytes peak_resident_set() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes{usage.ru_maxrss * std::int64_t{1024}};
}

}  // namespace penstock
