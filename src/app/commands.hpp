// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/spec.hpp"

namespace penstock {

/// "0.1.0"
std::string program_version();

/// `penstock train`; starts MPI.
struct TrainCommand {
  std::string deck;
  std::vector<std::string> overrides;
  std::string resume = "none";
};
ExitCode train(const TrainCommand& command, int* argc, char*** argv);

/// `penstock check`: parses, lays out, plans memory, validates the schedule, opens the data. No MPI, no device.
struct CheckCommand {
  std::string deck;
  std::vector<std::string> overrides;
  bool json = false;
};
ExitCode check(const CheckCommand& command);

/// `penstock simulate`: what a step of the deck takes on its hardware, in time and memory. No MPI, no device.
struct SimulateCommand {
  std::string deck;
  std::vector<std::string> overrides;
  bool json = false;
  std::string trace;  ///< file to write
  std::string svg;    ///< file to write; "-" is standard output
  int columns = 0;    ///< of a drawing in text; 0: none
};
/// @throws Error does_not_fit, once all is printed and written, if a rank's plan exceeds the memory of its device
ExitCode simulate(const SimulateCommand& command);

/// `penstock show`: draws the schedule of a deck or of a CSV file, with unit prices unless the deck names hardware. No
/// MPI, no device.
struct ShowCommand {
  std::string file;  ///< a deck, or a schedule if it ends in .csv
  std::vector<std::string> overrides;
  std::string csv;  ///< file to write; "-" is standard output
  std::string svg;
  int columns = 100;
  bool compute_only = false;  ///< no rows for messages and copies
  bool all_actions = false;
};
ExitCode show(const ShowCommand& command);

/// `penstock plan`: searches layouts and schedules for the deck's devices, shows the best, writes the first as a deck.
struct PlanCommand {
  std::string deck;
  std::vector<std::string> overrides;
  std::string output = "planned.yaml";  ///< deck to write
  bool json = false;
};
/// @throws Error does_not_fit if no candidate fits, with the closest and what would
ExitCode plan(const PlanCommand& command);

/// `penstock measure`: times kernels, copies, messages and optimizer of the machine, and writes a hardware file; starts
/// MPI: on as many ranks as the machine is to have devices.
struct MeasureCommand {
  std::string output = "this_machine.yaml";
  std::string name = "this machine";
  std::int32_t threads = 1;        ///< of one rank
  std::string precision = "bf16";  ///< storage of the measured kernels: bf16 or fp32
};
ExitCode measure(const MeasureCommand& command, int* argc, char*** argv);

/// `penstock trace`: summarizes a trace, converts it, or compares it with another.
struct TraceCommand {
  std::string file;
  std::string chrome;
  std::string svg;
  std::string against;
  std::int32_t step = -1;  ///< for the drawings; -1: the last
  int columns = 100;
};
ExitCode trace(const TraceCommand& command);

/// `penstock generate`: text from a checkpoint; starts MPI.
struct GenerateCommand {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string prompt = "The ";
  std::int32_t tokens = 200;
  double temperature = 0.8;
  std::uint64_t seed = 1;
};
ExitCode generate(const GenerateCommand& command, int* argc, char*** argv);

}  // namespace penstock
