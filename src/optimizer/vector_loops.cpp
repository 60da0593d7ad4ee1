// SPDX-License-Identifier: Apache-2.0
#include "optimizer/vector_loops.hpp"

namespace penstock {

namespace avx512 {
extern const VectorLoops loops;
}
namespace avx2 {
extern const VectorLoops loops;
}
namespace baseline {
extern const VectorLoops loops;
}

const VectorLoops* vector_loops(std::string_view instruction_set) {
#ifdef PENSTOCK_X86_LOOPS
  if (instruction_set == "avx512") {
    const bool runs = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    return runs ? &avx512::loops : nullptr;
  }
  if (instruction_set == "avx2") return __builtin_cpu_supports("avx2") != 0 ? &avx2::loops : nullptr;
#endif
  return instruction_set == "baseline" ? &baseline::loops : nullptr;
}

const VectorLoops& vector_loops() {
  static const VectorLoops& widest = []() -> const VectorLoops& {
    for (const std::string_view name : {"avx512", "avx2"}) {
      if (const VectorLoops* found = vector_loops(name)) return *found;
    }
    return baseline::loops;
  }();
  return widest;
}

}  // namespace penstock
