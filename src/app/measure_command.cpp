// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "app/commands.hpp"
#include "app/measured_rates.hpp"
#include "app/text_file.hpp"
#include "app/with_mpi.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/hardware_file.hpp"
#include "device/factory.hpp"
#include "device/host/host_device.hpp"

namespace penstock {
namespace {

Bytes host_memory() {
  return {std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)};
}

/// What measured figures cannot say of themselves.
std::string source_of(const MeasureCommand& command, const Kernels& kernels, int ranks, bool one_machine) {
  return fmt::format("penstock measure {}, {} x {}, {} a rank{}", program_version(), ranks, kernels.description(),
                     counted(command.threads, "thread"),
                     one_machine ? "; links between nodes: those inside, there was one machine" : "");
}

/// Better now than after the measurement.
void check_writable(const std::string& path) {
  const bool is_new = !std::filesystem::exists(path);
  if (!std::ofstream{path, std::ios::app})
    throw Error{ExitCode::cannot_write, system_error_text("writing " + path, errno)};
  if (is_new) std::filesystem::remove(path);
}

void note_busy_processors(const MeasureCommand& command, const Communicator& world) {
  const int threads = world.split_by_machine().size() * command.threads;
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  if (world.rank() != 0 || threads <= processors) return;
  log::note("{} measure on {}, in turns: the figures are those of ranks that get in each other's way",
            counted(threads, "thread"), counted(processors, "processor"));
}

HardwareOptions measure_all(const MeasureCommand& command, const Communicator& world) {
  const DType storage = command.precision == "bf16" ? DType::bf16 : DType::f32;
  Workers workers{command.threads};
  const auto kernels = make_host_kernels(workers);
  const auto device = make_host_device(Bytes{0}, {});
  const Communicator machine = world.split_by_machine();
  const bool one_machine = world.sum(machine.size() == world.size() ? 0 : 1) == 0;

  HardwareOptions hardware;
  hardware.name = command.name;
  hardware.source = source_of(command, *kernels, world.size(), one_machine);
  hardware.products = measure_products(*kernels, storage, world);
  hardware.attention = measure_attention(*kernels, storage, hardware.products.peak, world);
  hardware.device.bandwidth = measure_bandwidth(*kernels, world);
  hardware.device.launch_latency = measure_launch(*device, world);
  hardware.to_device = measure_copies(*device, Lane::to_device, world);
  hardware.to_host = measure_copies(*device, Lane::to_host, world);
  hardware.inside = measure_link(world, std::min(1, world.size() - 1));
  hardware.between = one_machine ? hardware.inside : measure_link(world, world.size() - 1);
  hardware.node.devices = machine.size();
  hardware.node.host_memory = host_memory();
  hardware.node.optimizer_rate = measure_optimizer(workers, storage, world);
  hardware.device.memory = Bytes{hardware.node.host_memory.value / (2 * machine.size())};
  return hardware;
}

}  // namespace

ExitCode measure(const MeasureCommand& command, int* argc, char*** argv) {
  return with_mpi(argc, argv, [&](const Communicator& world) {
    if (world.rank() == 0) check_writable(command.output);
    note_busy_processors(command, world);
    const HardwareOptions hardware = measure_all(command, world);
    if (world.rank() != 0) return ExitCode::finished;
    const std::string moved = move_aside(command.output);
    write_text(command.output, hardware_text(hardware));
    fmt::print(
        "{}{}: products {:.3g} GFLOP/s, attention {:.0f} % forward and {:.0f} % backward of it, memory {}/s, messages "
        "{}/s after {:.0f} us, AdamW {:.3g} million parameters/s: penstock simulate DECK --set hardware={}\n",
        moved, command.output, hardware.products.peak / 1e9, 100 * *hardware.attention.forward,
        100 * *hardware.attention.backward, to_text(hardware.device.bandwidth), to_text(hardware.inside.bandwidth),
        1e6 * hardware.inside.latency.value, hardware.node.optimizer_rate / 1e6, command.output);
    return ExitCode::finished;
  });
}

}  // namespace penstock
