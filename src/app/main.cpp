// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/environment.hpp"
#include "config/listing.hpp"
#include "config/words.hpp"

namespace penstock {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 finished; 1 an error of Penstock's own or of MPI: please report it; 2 bad command line or deck;\n"
    "3 does not fit in memory; 4 unreadable or damaged input or checkpoint; 5 loss or gradients not finite; 6 no\n"
    "progress (watchdog); 74 a file could not be written, as on a full disk or in a folder that is not there or not\n"
    "yours; 75 stopped early on purpose after a checkpoint: submit again.";

/// The command line as data; `run` is what the chosen command does.
struct CommandLine {
  CLI::App app{
      "Penstock trains language models under memory pressure: pipelines of few devices, planned memory, exact bits.",
      "penstock"};
  TrainCommand train_command;
  CheckCommand check_command;
  SimulateCommand simulate_command;
  PlanCommand plan_command;
  MeasureCommand measure_command;
  ShowCommand show_command;
  TraceCommand trace_command;
  GenerateCommand generate_command;
  std::string help_topic;
  bool markdown = false;
};

void add_overrides(CLI::App* command, std::vector<std::string>& overrides) {
  command->add_option("--set", overrides, "key=value: replaces a key of the deck; may be given several times")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

/// The same for commands that read the deck's hardware file too.
void add_all_overrides(CLI::App* command, std::vector<std::string>& overrides) {
  add_overrides(command, overrides);
  command->get_option("--set")->description(
      "key=value: replaces a key of the deck, hardware.key=value one of its hardware file; may be given several times");
}

void add_train(CommandLine& line) {
  auto* command = line.app.add_subcommand("train", "train a model: mpirun -n RANKS penstock train DECK");
  command->add_option("deck", line.train_command.deck, "the deck, a YAML file")->required()->type_name("DECK");
  add_overrides(command, line.train_command.overrides);
  command
      ->add_option("--resume", line.train_command.resume,
                   "auto: from the newest good checkpoint of the run's directory, if there is one; none; or a file")
      ->type_name("auto|none|FILE")
      ->capture_default_str();
}

void add_check(CommandLine& line) {
  auto* command = line.app.add_subcommand(
      "check", "lay out a deck, plan its memory, validate its schedule, open its data; trains nothing");
  command->add_option("deck", line.check_command.deck, "the deck, a YAML file")->required()->type_name("DECK");
  add_overrides(command, line.check_command.overrides);
  command->add_flag("--json", line.check_command.json, "print the plan as JSON");
}

void add_simulate(CommandLine& line) {
  auto& options = line.simulate_command;
  auto* command = line.app.add_subcommand(
      "simulate", "what a step of a deck takes on its hardware, in time and memory; trains nothing");
  command->add_option("deck", options.deck, "the deck, a YAML file")->required()->type_name("DECK");
  add_all_overrides(command, options.overrides);
  command->add_flag("--json", options.json, "print the figures as JSON");
  command->add_option("--trace", options.trace, "write the simulated step, for `penstock trace RUN --against FILE`")
      ->type_name("FILE");
  command->add_option("--svg", options.svg, "write a picture; - is standard output")->type_name("FILE");
  command->add_option("--columns", options.columns, "draw the step as text of this width")->check(CLI::Range(40, 1000));
}

void add_show(CommandLine& line) {
  auto* command = line.app.add_subcommand("show", "draw a schedule");
  command->add_option("file", line.show_command.file, "a deck, or a schedule (*.csv)")
      ->required()
      ->type_name("DECK|CSV");
  add_all_overrides(command, line.show_command.overrides);
  command->add_option("--csv", line.show_command.csv, "write the schedule; - is standard output")->type_name("FILE");
  command->add_option("--svg", line.show_command.svg, "write a picture; - is standard output")->type_name("FILE");
  command->add_option("--columns", line.show_command.columns, "width of the drawing")
      ->check(CLI::Range(40, 1000))
      ->capture_default_str();
  command->add_flag("--compute-only", line.show_command.compute_only, "a picture without rows for messages and copies");
  command->add_flag("--actions", line.show_command.all_actions, "list every action of every rank");
}

void add_plan(CommandLine& line) {
  auto& options = line.plan_command;
  auto* command = line.app.add_subcommand(
      "plan", "search layouts and schedules for plan.devices devices of the deck's hardware, and rank them");
  command->add_option("deck", options.deck, "the deck, a YAML file")->required()->type_name("DECK");
  add_all_overrides(command, options.overrides);
  command->add_option("--output", options.output, "the deck of the best layout")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_flag("--json", options.json, "print the layouts as JSON");
}

void add_measure(CommandLine& line) {
  auto& options = line.measure_command;
  auto* command = line.app.add_subcommand(
      "measure", "time this machine's kernels, copies, messages and optimizer: mpirun -n RANKS penstock measure");
  command->add_option("--output", options.output, "the hardware file to write")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--name", options.name, "of the machine, for people")->capture_default_str();
  command->add_option("--threads", options.threads, "threads of one rank")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--precision", options.precision, "storage of the measured kernels")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
}

void add_trace(CommandLine& line) {
  auto* command = line.app.add_subcommand("trace", "where the time of a run went: summary, pictures, comparison");
  command->add_option("file", line.trace_command.file, "a run's folder, or its trace.h5")
      ->required()
      ->type_name("RUN|FILE");
  command->add_option("--chrome", line.trace_command.chrome, "write Chrome's trace events, for Perfetto")
      ->type_name("FILE");
  command->add_option("--svg", line.trace_command.svg, "write a picture of one step")->type_name("FILE");
  command->add_option("--step", line.trace_command.step, "the step to draw; the last if not given")->type_name("N");
  command->add_option("--against", line.trace_command.against, "compare with another trace")->type_name("RUN|FILE");
  command->add_option("--columns", line.trace_command.columns, "width of the drawing")
      ->check(CLI::Range(40, 1000))
      ->capture_default_str();
}

void add_generate(CommandLine& line) {
  auto& options = line.generate_command;
  auto* command =
      line.app.add_subcommand("generate", "text from a checkpoint, on one rank or on as many as mpirun starts");
  command->add_option("checkpoint", options.checkpoint, "a checkpoint, checkpoints/step_*.h5")
      ->required()
      ->type_name("FILE");
  add_overrides(command, options.overrides);
  command->add_option("--prompt", options.prompt, "what the text starts with")->capture_default_str();
  command->add_option("--tokens", options.tokens, "length of the text")->capture_default_str();
  command->add_option("--temperature", options.temperature, "divides the logits; 0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "of the random draws")->capture_default_str();
}

void add_help(CommandLine& line) {
  auto* command = line.app.add_subcommand("help", "the keys of a deck: penstock help deck");
  command->add_option("topic", line.help_topic, "deck")->required()->check(CLI::IsMember({"deck"}));
  command->add_flag("--markdown", line.markdown, "as doc/decks.md");
}

ExitCode run(const CommandLine& line, int* argc, char*** argv) {
  if (line.app.got_subcommand("train")) return train(line.train_command, argc, argv);
  if (line.app.got_subcommand("check")) return check(line.check_command);
  if (line.app.got_subcommand("simulate")) return simulate(line.simulate_command);
  if (line.app.got_subcommand("plan")) return plan(line.plan_command);
  if (line.app.got_subcommand("measure")) return measure(line.measure_command, argc, argv);
  if (line.app.got_subcommand("show")) return show(line.show_command);
  if (line.app.got_subcommand("trace")) return trace(line.trace_command);
  if (line.app.got_subcommand("generate")) return generate(line.generate_command, argc, argv);
  std::cout << (line.markdown ? manual() : key_help());
  return ExitCode::finished;
}

void describe_commands(CommandLine& line) {
  line.app.set_version_flag("--version", program_version());
  line.app.footer(exit_codes);
  line.app.require_subcommand(1);
  add_train(line);
  add_check(line);
  add_simulate(line);
  add_plan(line);
  add_measure(line);
  add_show(line);
  add_trace(line);
  add_generate(line);
  add_help(line);
}

/// The commands, as users type them.
std::vector<std::string> command_names(const CommandLine& line) {
  std::vector<std::string> names;
  for (const auto* command : line.app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

void refuse_unknown_command(const CommandLine& line, const std::string& word) {
  const auto names = command_names(line);
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end()) return;
  const auto nearest = config::nearest_word(word, names);
  fail(ExitCode::bad_input, "there is no command `{}`; {}", config::shown(word),
       nearest.empty() ? fmt::format("the commands are {}", config::listed(names))
                       : fmt::format("did you mean `{}`?", nearest));
}

/// The options of a command: "--resume".
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    if (option->nonpositional()) names.push_back("--" + option->get_single_name());
  }
  return names;
}

/// The first word that no option or argument of the chosen command takes. @pre there is one
std::string first_extra(const CommandLine& line, int argc, char** argv) {
  constexpr bool with_commands = true;
  const auto extras = line.app.remaining(with_commands);
  const auto* found = std::find_if(argv, argv + argc, [&](const char* word) {
    return std::find(extras.begin(), extras.end(), word) != extras.end();
  });
  return found == argv + argc ? extras.front() : *found;
}

/// The key of a deck that was most likely meant by `--stes`, as " did you mean --set training.steps=...?"; may be
/// empty.
std::string key_meant_by(const std::string& option) {
  std::vector<std::string> names;
  const auto entries = list_keys(Deck{});
  names.reserve(entries.size());
  for (const auto& entry : entries) names.emplace_back(entry.name());
  const auto nearest = config::nearest_word(option.substr(option.find_first_not_of('-')), names);
  const auto found = std::find(names.begin(), names.end(), nearest);
  if (found == names.end()) return {};
  return fmt::format("; did you mean --set {}=...?",
                     entries[static_cast<std::size_t>(std::distance(names.begin(), found))].path);
}

[[noreturn]] void refuse_extra(const CommandLine& line, const std::string& word) {
  const CLI::App& command = *line.app.get_subcommands().front();
  if (word.find_first_not_of('-') == std::string::npos || !word.starts_with('-')) {
    fail(ExitCode::bad_input, "`{}` is one argument too many for {}; `penstock {} --help` says what it takes",
         config::shown(word), command.get_name(), command.get_name());
  }
  const auto names = option_names(command);
  const bool takes_keys = std::find(names.begin(), names.end(), "--set") != names.end();
  fail(ExitCode::bad_input, "{} has no option `{}`; its options are {}{}", command.get_name(), config::shown(word),
       config::listed(names), takes_keys ? key_meant_by(word) : "");
}

/// What is to be done instead of a command: nothing, or to end with a code, as after --help.
std::optional<ExitCode> parse(CommandLine& line, int argc, char** argv) {
  try {
    if (argc > 1) refuse_unknown_command(line, argv[1]);
    line.app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    refuse_extra(line, first_extra(line, argc, argv));
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    if (is_first_of_job()) line.app.exit(error);
    return asked ? ExitCode::finished : ExitCode::bad_input;
  }
}

ExitCode parse_and_run(int argc, char** argv) {
  CommandLine line;
  describe_commands(line);
  try {
    if (const auto code = parse(line, argc, argv)) return *code;
  } catch (const Error& error) {
    // The command line is the same on all ranks: one of them says what is wrong with it.
    if (is_first_of_job()) log::error(error.what());
    return error.code();
  }
  return run(line, &argc, &argv);
}

/// Logging itself may throw (no memory): then only the code is left to say.
ExitCode tell(ExitCode code, const char* message) noexcept {
  try {
    log::error(message);
  } catch (...) {
    std::fputs("error: out of memory\n", stderr);
  }
  return code;
}

ExitCode main_without_exceptions(int argc, char** argv) noexcept {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    const auto [code, message] = outcome_of(error);
    return tell(code, message.c_str());
  } catch (...) {
    return tell(ExitCode::internal, "an exception of an unknown type");
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return static_cast<int>(penstock::main_without_exceptions(argc, argv));
}
