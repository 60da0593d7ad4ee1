// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/checkpointing.hpp"
#include "app/commands.hpp"
#include "app/fit_advice.hpp"
#include "app/generation.hpp"
#include "app/job.hpp"
#include "app/with_mpi.hpp"
#include "base/counted.hpp"
#include "checkpoint/reader.hpp"
#include "comm/agreement.hpp"
#include "config/reader.hpp"
#include "data/tokenizer.hpp"

namespace penstock {
namespace {

/// The deck of the checkpoint, laid out over the ranks that were started: one pipeline, one micro-batch of one
/// sequence, in the slices that its run had.
Deck deck_for_generation(const GenerateCommand& command, const Communicator& world, IoThread& io) {
  return jointly(world, [&] {
    CheckpointHeader header;
    io.run([&] { header = read_checkpoint_header(command.checkpoint); });
    auto overrides = command.overrides;
    const auto schedule = parse_deck(header.deck, command.checkpoint).schedule;
    // The layout is what was started: it comes last, over what the checkpoint's deck or the user says.
    for (const char* value : {"parallel={pipeline: 1, data: 1}", "training.global_batch=1", "training.micro_batch=1",
                              "memory.recompute_by_stage=null"}) {
      overrides.emplace_back(value);
    }
    overrides.push_back(fmt::format("schedule={{kind: seq1f1b, slices: {}, cutting: {}}}", schedule.slices,
                                    deck_name(schedule.cutting)));
    const auto layers = parse_deck(header.deck, command.checkpoint, overrides).model.layers;
    if (world.size() > layers) {
      fail(ExitCode::bad_input, "{} started, but the model has {}: start at most {}",
           counted(world.size(), "rank was", "ranks were"), counted(layers, "layer"), counted(layers, "rank"));
    }
    overrides.push_back(fmt::format("parallel.pipeline={}", world.size()));
    auto deck = parse_deck(header.deck, command.checkpoint, overrides);
    notes_if_compatible(header, command.checkpoint, deck);  // the notes are of training
    return deck;
  });
}

}  // namespace

ExitCode generate(const GenerateCommand& command, int* argc, char*** argv) {
  if (command.tokens < 1) fail(ExitCode::bad_input, "--tokens {}: expected at least 1", command.tokens);
  if (!std::isfinite(command.temperature) || command.temperature < 0) {
    fail(ExitCode::bad_input, "--temperature {}: expected a number of at least 0", command.temperature);
  }
  return with_mpi(argc, argv, [&](const Communicator& world) {
    IoThread io;
    const auto deck = deck_for_generation(command, world, io);
    const auto tokenizer = jointly(world, [&] { return make_tokenizer(deck.data.tokenizer); });
    const auto prompt = jointly(
        world, [&] { return prompt_tokens(*tokenizer, command.prompt, model_spec(deck).vocabulary, "--prompt"); });
    const auto plan = jointly(world, [&] {
      Workers workers{deck.device.threads};
      auto shape = run_shape(deck, command.checkpoint);
      shape.purpose = Purpose::text;
      auto laid_out = make_run_plan(shape, *make_host_kernels(workers));
      check_fits(laid_out, generation_advice(deck, command.checkpoint));
      return laid_out;
    });
    RankState state{plan, world, deck.device, deck.testing.delays, store_options(deck)};
    load_parameters(command.checkpoint, plan, state, world, io);
    state.upload_parameters();
    state.publish_parameters(0);
    Generation generation{plan, state};
    const auto text = tokenizer->decode(generation.extend(world, prompt, command.tokens, tokenizer->end_of_text(),
                                                          {command.temperature, command.seed}));
    if (world.rank() == 0) {
      const auto line = tokenizer->decode(prompt) + text + "\n";
      std::fwrite(line.data(), 1, line.size(), stdout);
    }
    return ExitCode::finished;
  });
}

}  // namespace penstock
