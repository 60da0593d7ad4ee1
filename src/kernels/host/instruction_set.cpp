// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string>
#include <utility>

#include <cpuid.h>
#include <dnnl.hpp>

#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace penstock {
namespace {

InstructionSet highest_allowed = InstructionSet::amx;  // by limit_host_instruction_set

/// Leaf 7 tells of AMX tiles (bit 24 of edx) and of their bf16 products (bit 22).
bool has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & (1U << 24U)) != 0 && (d & (1U << 22U)) != 0;
}

InstructionSet processor_set() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return InstructionSet::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  return has_amx() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}

/// The cap that oneDNN reads from the environment; what it does not know it ignores.
InstructionSet environment_cap() {
  const char* value = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (value == nullptr) value = std::getenv("DNNL_MAX_CPU_ISA");
  std::string name = value == nullptr ? "" : value;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr std::array<std::pair<std::string_view, InstructionSet>, 7> caps{
      {{"SSE41", InstructionSet::baseline},
       {"AVX", InstructionSet::baseline},
       {"AVX2", InstructionSet::avx2},
       {"AVX2_VNNI", InstructionSet::avx2},
       {"AVX512_CORE", InstructionSet::avx512},
       {"AVX512_CORE_VNNI", InstructionSet::avx512},
       {"AVX512_CORE_BF16", InstructionSet::avx512_bf16}}};
  for (const auto& [known, set] : caps) {
    if (name == known) return set;
  }
  return InstructionSet::amx;
}

dnnl::cpu_isa library_set(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return dnnl::cpu_isa::sse41;
    case InstructionSet::avx2:
      return dnnl::cpu_isa::avx2;
    case InstructionSet::avx512:
      return dnnl::cpu_isa::avx512_core;
    case InstructionSet::avx512_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case InstructionSet::amx:
      break;
  }
  return dnnl::cpu_isa::all;
}

}  // namespace

InstructionSet host_instruction_set() {
  return std::min({processor_set(), environment_cap(), highest_allowed});
}

void limit_host_instruction_set(InstructionSet limit) {
  if (limit >= host_instruction_set()) return;
  if (dnnl::set_max_cpu_isa(library_set(limit)) != dnnl::status::success) {
    fail(ExitCode::internal, "host kernels: the instruction set was limited after oneDNN had chosen one");
  }
  highest_allowed = limit;
}

std::string_view name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
    case InstructionSet::amx:
      return "amx";
  }
  return "";
}

}  // namespace penstock
