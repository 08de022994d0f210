// Two packs and one destination, and one pack that goes on with other options: what lies there in
// the end is one pack's, whole, or says that it is not.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "data/pack_fixture.h"
#include "data/pack_record.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Existing = PackOptions::Existing;
using End = PackReport::End;
using Wrap = decltype(PackOptions::wrap_destination);

// A store that locks nothing, as object stores.
class WithoutLocks : public store::FaultStore {
 public:
  using FaultStore::FaultStore;
  std::unique_ptr<store::Claim> claim(std::string_view, Deadline) override { return nullptr; }
};

class PackRivals : public PackTest {
 protected:
  // Calls `meanwhile` before the commit with this number: 0 is that of pack.json.
  template <typename Store = store::FaultStore>
  static Wrap at_commit(int number, std::function<void()> meanwhile) {
    return [=](std::shared_ptr<store::Store> inner) {
      return std::make_shared<Store>(std::move(inner),
                                     store::Faults{.before_commit = [=, commits = 0]() mutable {
                                       if (commits++ == number) meanwhile();
                                     }});
    };
  }

  // In the order of the shards.
  PackReport pack_in_order(const std::string& from, PackOptions options) {
    options.source.threads = 1;
    const std::string urls[] = {path(from)};
    return pack(urls, path("out"), options, watch_);
  }
  std::string refusal_in_order(const std::string& from, const PackOptions& options) {
    try {
      pack_in_order(from, options);
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
    return "taken";
  }
};

TEST_F(PackRivals, WhileOneWorksAnotherIsTurnedAway) {
  write_pictures("in", 30);
  const PackOptions options{.shard_samples = 4, .shuffle = 1};
  pack_all({"in"}, "whole", options);
  PackOptions disturbed = options;
  int asked = 0;
  disturbed.wrap_destination = at_commit(3, [&] {
    const std::string who = fmt::format("process {} on ", ::getpid());
    EXPECT_THAT(refusal({"in"}, "out", options), AllOf(HasSubstr(who), HasSubstr("wait")));
    EXPECT_EQ(code_, Code::kExists);
    PackOptions other{.shard_samples = 4, .shuffle = 2, .existing = Existing::kOverwrite};
    EXPECT_THAT(refusal({"in"}, "out", other), HasSubstr(who));
    const std::string urls[] = {path("in")};
    EXPECT_EQ(plan_pack(urls, path("out"), options, watch_).end, End::kPlanned);
    ++asked;
  });
  EXPECT_EQ(pack_in_order("in", disturbed).end, End::kDone);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(PackRivals, AfterOneWasKilledAnotherTakesTheFolderAtOnce) {
  write_pictures("in", 30);
  PackOptions other{.shard_samples = 4, .shuffle = 2};
  pack_all({"in"}, "whole", other);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    PackOptions options{.shard_samples = 4, .shuffle = 1};
    options.wrap_destination = at_commit(4, [&] {
      [[maybe_unused]] const auto told = ::write(pipe[1], "x", 1);
      ::pause();
    });
    pack_in_order("in", options);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  other.existing = Existing::kOverwrite;
  EXPECT_THAT(refusal({"in"}, "out", other), HasSubstr(fmt::format("process {}", child)));
  ::kill(child, SIGKILL);
  EXPECT_EQ(pack_all({"in"}, "out", other).end, End::kDone);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(PackRivals, WhoIsTurnedAwayLeavesNoFolder) {
  write_pictures("in", 3);
  write("bad.jsonl", "{\n");
  EXPECT_NE(refusal({"bad.jsonl"}, "new/folder"), "");
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

TEST_F(PackRivals, WithoutLocksTheOneWhosePlaceWasTakenEndsAndLeavesNothing) {
  write_pictures("in", 30);
  PackOptions other{.shard_samples = 4, .shuffle = 2};
  pack_all({"in"}, "whole", other);
  other.existing = Existing::kOverwrite;
  for (const int commit : {1, 3, 7, 8}) {  // 8: of the last shard, of eight
    std::filesystem::remove_all(path("out"));
    PackOptions options{.shard_samples = 4, .shuffle = 1};
    options.wrap_destination = at_commit<WithoutLocks>(commit, [&] {
      other.wrap_destination = [](std::shared_ptr<store::Store> inner) {
        return std::make_shared<WithoutLocks>(std::move(inner), store::Faults{});
      };
      pack_in_order("in", other);
      // As if it were still in need of this one.
      std::filesystem::remove(path(fmt::format("out/{:06}.shard", commit - 1)));
    });
    EXPECT_THAT(refusal_in_order("in", options), HasSubstr("another pack has taken its place"));
    EXPECT_EQ(code_, Code::kExists);
    other.existing = Existing::kRefuse;
    EXPECT_EQ(pack_in_order("in", other).shards_made, 1);
    EXPECT_EQ(files("out"), files("whole")) << commit;
    other.existing = Existing::kOverwrite;
  }
}

TEST_F(PackRivals, WithoutLocksTheSameCallTwiceEndsAsOne) {
  write_pictures("in", 30);
  PackOptions options{.shard_samples = 4};
  pack_all({"in"}, "whole", options);
  PackOptions first = options;
  options.wrap_destination = at_commit<WithoutLocks>(-1, {});
  first.wrap_destination = at_commit<WithoutLocks>(3, [&] { pack_in_order("in", options); });
  EXPECT_THAT(refusal_in_order("in", first), HasSubstr("another pack has taken its place"));
  EXPECT_EQ(files("out"), files("whole"));
}

// The shard of one that was at work, and lands after all was removed: nothing tells it from ours.
TEST_F(PackRivals, WithoutLocksALateShardOfAnotherIsNeverTakenForOurs) {
  write_pictures("in", 30);
  PackOptions options{.shard_samples = 4, .shuffle = 1};
  pack_all({"in"}, "whole", options);
  const auto whole = files("whole");
  pack_all({"in"}, "out", {.shard_samples = 4, .shuffle = 2});
  const std::string late = files("out").at("000005.shard");
  options.existing = Existing::kOverwrite;
  // 0 and 1 are of pack.json: clearing, and packing.
  options.wrap_destination = at_commit<WithoutLocks>(4, [&] { write("out/000005.shard", late); });
  EXPECT_THAT(refusal_in_order("in", options),
              AllOf(HasSubstr("000005.shard has appeared"), HasSubstr("begins anew")));
  options.existing = Existing::kRefuse;
  options.wrap_destination = {};
  EXPECT_EQ(pack_in_order("in", options).end, End::kDone);
  EXPECT_EQ(files("out"), whole);
}

TEST_F(PackRivals, ARecordThatIsRemovedMeanwhileIsNoticed) {
  write_pictures("in", 30);
  PackOptions options{.shard_samples = 4};
  options.wrap_destination = at_commit(3, [&] { std::filesystem::remove(path("out/pack.json")); });
  EXPECT_THAT(refusal_in_order("in", options), HasSubstr("it was removed"));
  EXPECT_FALSE(std::filesystem::exists(path("out/pack.json")));
}

// --- bad samples, and calls that differ in how many they allow
// ------------------------------------

class PackOnBad : public PackRivals, public ::testing::WithParamInterface<Target> {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 30; ++i)
      lines += i == 4 || i == 13 ? "{bad\n" : fmt::format("{{\"i\": {}}}\n", i);
    write("in.jsonl", lines);
    pack_all({"in.jsonl"}, "whole", with(5));
  }

  static PackOptions with(std::int64_t most_bad) {
    return {.target = GetParam(), .shard_samples = 3, .most_bad = most_bad};
  }
  // A pack that has ended before its shard `shard`.
  void begin(std::int64_t most_bad, int shard) {
    PackOptions options = with(most_bad);
    options.wrap_destination =
        at_commit(shard + 1, [] { throw Error(Code::kIo, "a fault on purpose"); });
    EXPECT_THAT(refusal_in_order("in.jsonl", options), HasSubstr("on purpose"));
  }
};

TEST_P(PackOnBad, WhatWasLeftOutBeforeIsCountedToo) {
  EXPECT_EQ(files("whole").at("pack.json").find("\"skipped\": 2") != std::string::npos, true);
  for (const int shard : {1, 2, 5, 9}) {
    std::filesystem::remove_all(path("out"));
    begin(5, shard);
    const PackReport report = pack_in_order("in.jsonl", with(2));
    EXPECT_EQ(report.skipped, 2);
    EXPECT_EQ(report.samples, 28);
    EXPECT_EQ(files("out"), files("whole"));
  }
}

TEST_P(PackOnBad, FewerThanWereLeftOutIsRefusedAndLiesNot) {
  begin(5, 6);
  EXPECT_THAT(refusal_in_order("in.jsonl", with(0)),
              HasSubstr(GetParam() == Target::kPacked ? "line 5 of in.jsonl"
                                                      : "2 samples where 3 were planned"));
  EXPECT_THAT(refusal_in_order("in.jsonl", with(1)), HasSubstr("2 bad samples were left out"));
  // The refused calls have not made it forget that samples may be missing.
  EXPECT_EQ(pack_in_order("in.jsonl", with(2)).skipped, 2);
  EXPECT_EQ(files("out"), files("whole"));
  EXPECT_THAT(refusal_in_order("in.jsonl", with(0)), HasSubstr("--on-bad skip:2"));
  EXPECT_THAT(refusal_in_order("in.jsonl", with(1)), HasSubstr("--on-bad skip:2"));
  EXPECT_EQ(pack_in_order("in.jsonl", with(2)).end, End::kNothingToDo);
}

TEST_P(PackOnBad, AShardIsMadeAgainOfADonePackWithTheCountsOfTheOthers) {
  for (const char* shard : {"000001", "000005"}) {
    std::filesystem::remove_all(path("out"));
    pack_in_order("in.jsonl", with(5));
    std::filesystem::remove(
        path(fmt::format("out/{}{}", shard, GetParam() == Target::kPacked ? ".shard" : ".tar")));
    const PackReport report = pack_in_order("in.jsonl", with(4));
    EXPECT_EQ(report.shards_made, 1);
    EXPECT_EQ(report.skipped, 2);
    EXPECT_EQ(files("out"), files("whole"));
  }
}

TEST_P(PackOnBad, OneThatBeganWithoutLeavingOutGoesOnWithIt) {
  if (GetParam() == Target::kPacked) {
    // The types are found first, of all lines.
    EXPECT_THAT(refusal_in_order("in.jsonl", with(0)), HasSubstr("line 5 of in.jsonl"));
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  } else {
    EXPECT_THAT(refusal_in_order("in.jsonl", with(0)), HasSubstr("line 5 of in.jsonl"));
    EXPECT_EQ(shards("out").size(), 1u);
  }
  EXPECT_EQ(pack_in_order("in.jsonl", with(2)).skipped, 2);
  EXPECT_EQ(files("out"), files("whole"));
}

INSTANTIATE_TEST_SUITE_P(Targets, PackOnBad,
                         ::testing::Values(Target::kPacked, Target::kWebDataset),
                         [](const auto& info) {
                           return info.param == Target::kPacked ? "Packed" : "Tar";
                         });

}  // namespace
}  // namespace bedplate::data
