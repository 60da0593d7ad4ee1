// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

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

/// `penstock show`: draws the schedule of a deck or of a CSV file, with unit prices. No MPI, no device.
struct ShowCommand {
  std::string file;  ///< a deck, or a schedule if it ends in .csv
  std::vector<std::string> overrides;
  std::string csv;  ///< file to write; "-" is standard output
  std::string svg;
  int columns = 100;
  bool all_actions = false;
};
ExitCode show(const ShowCommand& command);

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
