// SPDX-License-Identifier: Apache-2.0
#include "config/resume.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/deck_texts.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The findings when the deck of `overrides` resumes from a checkpoint of the smallest one.
ResumeFindings resume_with(const std::vector<std::string>& overrides) {
  return resume_compatibility(read(smallest_deck), read(smallest_deck, overrides));
}

TEST(Resume, SaysNothingOfWhatChangesNoResult) {
  const auto findings = resume_with({"parallel.pipeline=2", "schedule.kind=gpipe", "memory.recompute=full",
                                     "device.threads=2", "output.directory=elsewhere", "data.validation=README.md",
                                     "training.validate_every=5", "training.time_limit=1 h", "testing.delays.seed=3"});

  EXPECT_THAT(findings.refusals, IsEmpty());
  EXPECT_THAT(findings.notes, IsEmpty());
}

TEST(Resume, RefusesAnotherModel) {
  const auto findings = resume_with({"model.layers=9", "model.tie_embeddings=true"});

  EXPECT_THAT(findings.refusals,
              ElementsAre("model.layers is 9, and 8 in the checkpoint: the checkpoint's parameters have other names or "
                          "shapes",
                          HasSubstr("model.tie_embeddings is true, and false in the checkpoint")));
}

TEST(Resume, NotesWhatMakesItAnotherRun) {
  const auto findings =
      resume_with({"training.steps=40", "training.seed=2", "parallel.data=2", "training.weight_decay=0"});

  EXPECT_THAT(findings.refusals, IsEmpty());
  EXPECT_THAT(findings.notes,
              ElementsAre(HasSubstr("training.steps is 40, and 10 in the checkpoint: from here on the learning rate"),
                          HasSubstr("training.seed is 2, and 1 in the checkpoint: from here on the samples"),
                          HasSubstr("training.weight_decay is 0, and 0.1"), HasSubstr("parallel.data is 2, and 1")));
}

TEST(Resume, NotesOtherSlicesForTheirSumsAlone) {
  const auto findings = resume_with({"schedule.kind=svpp", "schedule.virtual=2", "schedule.slices=4"});

  EXPECT_THAT(findings.refusals, IsEmpty());
  EXPECT_THAT(findings.notes, ElementsAre(HasSubstr("schedule.slices is 4, and 1 in the checkpoint: sums are formed")));
}

TEST(Resume, TakesAWrittenDefaultForTheDefault) {
  const auto findings = resume_with({"model.kv_heads=8", "model.head_size=32", "model.vocabulary=256"});

  EXPECT_THAT(findings.refusals, IsEmpty());
}

TEST(Resume, GoesOnWithATokenizerThatHasMoved) {
  const auto findings = resume_with({"data.tokenizer=elsewhere/gpt2_tokenizer.bin", "model.vocabulary=256"});

  EXPECT_THAT(findings.refusals, IsEmpty());
  EXPECT_THAT(findings.notes, ElementsAre(HasSubstr("data.tokenizer is elsewhere/gpt2_tokenizer.bin, and bytes")));
}

}  // namespace
}  // namespace penstock
