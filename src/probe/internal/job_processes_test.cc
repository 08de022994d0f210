#include "probe/internal/job_processes.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "base/text.h"
#include "probe/internal/fake_processes.h"
#include "probe/internal/masking.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class JobProcessesTest : public ::testing::Test {
 protected:
  void put(int pid, const FakeProcess& fake) { machine_.put(pid, fake); }
  void remove(int pid) { machine_.remove(pid); }

  std::vector<int> alive() {
    std::vector<int> pids;
    for (const JobProcess& process : job_.alive()) pids.push_back(process.pid);
    return pids;
  }
  std::string env(const std::map<std::string, std::string>& variables) {
    std::string text;
    for (const auto& [name, value] : variables) text += name + "=" + value + '\0';
    return text;
  }

  FakeProcesses machine_;
  JobProcesses job_{machine_.host(), nullptr, 100, 0};
};

TEST_F(JobProcessesTest, TheFamilyIsFoundByItsParents) {
  put(1, {.comm = "init"});
  put(100, {});
  put(101, {.ppid = 100});
  put(99, {.ppid = 101});  // numbers wrap
  put(300, {.ppid = 1});   // somebody else's
  job_.update(kSecond);
  EXPECT_THAT(alive(), UnorderedElementsAre(99, 100, 101));
  put(301, {.ppid = 300});
  put(102, {.ppid = 99});
  job_.update(2 * kSecond);
  EXPECT_THAT(alive(), UnorderedElementsAre(99, 100, 101, 102));
}

TEST_F(JobProcessesTest, ADaemonThatWasSeenStaysTheJobs) {
  put(100, {});
  put(101, {.ppid = 100});
  job_.update(kSecond);
  put(101, {.ppid = 1});  // its parent is gone
  remove(100);
  job_.update(2 * kSecond);
  EXPECT_THAT(alive(), ElementsAre(101));
  ASSERT_EQ(job_.ended().size(), 1u);
  EXPECT_EQ(job_.ended()[0].pid, 100);
  EXPECT_EQ(job_.ended()[0].end, 2 * kSecond);
}

TEST_F(JobProcessesTest, ANumberThatIsUsedAgainIsAnotherProcess) {
  put(100, {});
  put(101, {.ppid = 100, .comm = "first"});
  job_.update(kSecond);
  put(101, {.ppid = 100, .comm = "second", .start = 900});
  job_.update(2 * kSecond);
  ASSERT_EQ(job_.ended().size(), 1u);
  EXPECT_EQ(job_.ended()[0].comm, "first");
  EXPECT_EQ(job_.find(101)->comm, "second");
}

TEST_F(JobProcessesTest, ADeadProcessThatWaitsToBeReapedHasEnded) {
  put(100, {});
  job_.update(kSecond);
  put(100, {.state = 'Z'});
  job_.update(2 * kSecond);
  EXPECT_THAT(alive(), IsEmpty());
  EXPECT_EQ(job_.ended().size(), 1u);
}

TEST_F(JobProcessesTest, AnExecIsNoticed) {
  put(100, {.comm = "sh", .exe = "/bin/dash"});
  job_.update(kSecond);
  job_.update(3 * kSecond);
  EXPECT_EQ(job_.find(100)->role, "other");
  put(100, {});
  job_.update(20 * kSecond);
  EXPECT_THAT(job_.described(), ElementsAre(100));
  EXPECT_EQ(job_.find(100)->comm, "python");
  EXPECT_EQ(job_.find(100)->role, "python");
}

TEST_F(JobProcessesTest, ARankIsTheProcessThatWasToldSoNotItsChildren) {
  put(100, {.command = std::string("python\0-m\0torch.distributed.run\0", 32)});
  put(101,
      {.ppid = 100, .environment = env({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}})});
  put(102, {.ppid = 101, .environment = env({{"RANK", "3"}, {"WORLD_SIZE", "4"}})});
  put(103,
      {.ppid = 100, .comm = "bash", .exe = "/usr/bin/bash", .environment = env({{"RANK", "0"}})});
  put(104, {.ppid = 103, .environment = env({{"RANK", "0"}, {"WORLD_SIZE", "4"}})});
  job_.update(kSecond);
  EXPECT_EQ(job_.find(100)->role, "launcher");
  EXPECT_EQ(job_.find(101)->role, "rank");
  EXPECT_EQ(job_.find(101)->rank, 3);
  EXPECT_EQ(job_.find(101)->local_rank, 1);
  EXPECT_EQ(job_.find(101)->world_size, 4);
  EXPECT_EQ(job_.find(102)->role, "python");
  EXPECT_EQ(job_.find(102)->rank, -1);
  EXPECT_EQ(job_.find(103)->role, "other");
  EXPECT_EQ(job_.find(104)->role, "rank");
  EXPECT_EQ(job_.find(104)->rank, 0);
}

TEST_F(JobProcessesTest, NumbersOfOtherNamespacesAreFound) {
  put(100, {});
  job_.update(kSecond);
  EXPECT_EQ(job_.find_inside(100, 1).kind, PidAnswer::Kind::kFound);
  EXPECT_EQ(job_.find_inside(7, 1).kind, PidAnswer::Kind::kOurs);
  put(101, {.ppid = 100, .pids_inside = "101\t1"});
  put(102, {.ppid = 101, .pids_inside = "102\t7"});
  put(107, {.ppid = 100, .pids_inside = "107"});
  put(103, {.ppid = 101, .pids_inside = "103\t107"});
  job_.update(2 * kSecond);
  EXPECT_EQ(job_.find_inside(7, 1).pid, 102);
  EXPECT_EQ(job_.find_inside(107, 1).pid, 103);
  EXPECT_EQ(job_.find_inside(107, 100).pid, 107);
  EXPECT_EQ(job_.find_inside(55, 1).kind, PidAnswer::Kind::kUnknown);
}

TEST_F(JobProcessesTest, ProcessesThatSpokeAreAdopted) {
  put(100, {});
  put(500, {.ppid = 1});
  job_.update(kSecond);
  job_.adopt(500);
  job_.adopt(501);  // nothing there
  job_.update(2 * kSecond);
  EXPECT_THAT(alive(), UnorderedElementsAre(100, 500));
}

TEST_F(JobProcessesTest, WhyThereIsNoHookIsSaid) {
  const std::string torch = "7f00 r-xp /x/torch/lib/libtorch_cpu.so\n";
  const auto good = env({{"BEDPLATE_TRACE", "/proc/1/fd/3"}, {"PYTHONPATH", "/run/hook:/x"}});
  const auto why = [&](const FakeProcess& fake) {
    put(100, fake);
    job_.update(kSecond);
    return job_.why_no_hook(*job_.find(100), "/run/hook", "/run");
  };
  EXPECT_THAT(why({.command = std::string("python\0-Ic\0x\0", 13), .maps = torch}),
              HasSubstr("-I"));
  EXPECT_THAT(why({.command = std::string("python\0-X\0dev\0-E\0t.py\0", 22), .maps = torch}),
              HasSubstr("-E"));
  EXPECT_THAT(why({.environment = good}), IsEmpty());  // no torch: nothing to hook
  EXPECT_THAT(why({.maps = torch}), HasSubstr("environment of its own"));
  EXPECT_THAT(
      why({.environment = env({{"BEDPLATE_TRACE", "x"}, {"PYTHONPATH", "/other"}}), .maps = torch}),
      HasSubstr("PYTHONPATH of its own"));
  EXPECT_THAT(why({.environment = good, .maps = torch}), HasSubstr("did not report"));
  fs::create_directories(machine_.path() / "run");
  std::ofstream(machine_.path() / "run" / "hook_off.log")
      << "100\tfirst\n99\tother\n100\tall 512 slots are taken\n";
  EXPECT_THAT(why({.environment = good, .maps = torch}), HasSubstr("all 512 slots are taken"));
}

TEST_F(JobProcessesTest, AnEmbeddedPythonWithTorchIsNamed) {
  put(100, {.comm = "serve", .exe = "/opt/serve", .maps = "7f00 r-xp /x/libtorch_python.so\n"});
  job_.update(kSecond);
  EXPECT_THAT(job_.why_no_hook(*job_.find(100), "/run/hook", "/run"),
              HasSubstr("inside another program"));
}

TEST_F(JobProcessesTest, OneThatIsGoneBeforeItIsReadIsNone) {
  put(100, {});
  fs::create_directories(machine_.folder(101));  // no file of it can be opened any more
  machine_.put_stat(102, {.ppid = 100});
  std::ofstream(machine_.folder(102) / "stat");  // reads as empty
  machine_.put_stat(103, {.ppid = 100});
  std::ofstream(machine_.folder(103) / "stat") << "103 (python";
  put(104, {.ppid = 100});
  job_.update(kSecond);
  EXPECT_THAT(alive(), ElementsAre(100, 104));
  EXPECT_THAT(job_.ended(), IsEmpty());
  EXPECT_EQ(job_.find(103), nullptr);
}

TEST_F(JobProcessesTest, OneThatEndsWhileItIsReadIsKeptWithWhatWasRead) {
  put(100, {});
  machine_.put_stat(101, {.ppid = 100, .start = 150});
  job_.update(2 * kSecond);
  ASSERT_NE(job_.find(101), nullptr);
  EXPECT_EQ(job_.find(101)->comm, "");
  EXPECT_EQ(job_.find(101)->command, "");
  EXPECT_EQ(job_.find(101)->role, "other");
  EXPECT_EQ(job_.find(101)->rank, -1);
  remove(101);
  job_.update(3 * kSecond);
  ASSERT_EQ(job_.ended().size(), 1u);
  EXPECT_EQ(job_.ended()[0].pid, 101);
  EXPECT_EQ(job_.ended()[0].end, 3 * kSecond);
  EXPECT_EQ(job_.find(101), nullptr);
}

TEST_F(JobProcessesTest, ANumberThatGoesToAStrangerLeavesTheJob) {
  put(1, {.comm = "init"});
  put(100, {});
  put(101, {.ppid = 100});
  put(200, {.comm = "someone"});
  job_.update(kSecond);
  put(101, {.ppid = 200, .comm = "theirs", .start = 900});
  job_.update(2 * kSecond);
  EXPECT_THAT(alive(), ElementsAre(100));
  ASSERT_EQ(job_.ended().size(), 1u);
  EXPECT_EQ(job_.ended()[0].pid, 101);
  put(102, {.ppid = 101, .start = 950});  // nor are the stranger's children the job's
  job_.update(3 * kSecond);
  EXPECT_THAT(alive(), ElementsAre(100));
}

TEST_F(JobProcessesTest, ANameThatIsNoUtf8IsShownAndIsNoNewNameEachTime) {
  put(100, {.comm = "tr\xff\xfe) S in", .command = std::string("tr\xff\0--lr\0", 10)});
  job_.update(kSecond / 2);
  EXPECT_EQ(job_.find(100)->comm, to_utf8("tr\xff\xfe) S in"));
  EXPECT_EQ(job_.find(100)->comm, to_utf8(job_.find(100)->comm));
  EXPECT_EQ(job_.find(100)->command, to_utf8(job_.find(100)->command));
  EXPECT_THAT(job_.find(100)->command, HasSubstr("--lr"));
  job_.update(3 * kSecond);  // the second look that each gets when it is old enough
  EXPECT_THAT(job_.described(), ElementsAre(100));
  job_.update(4 * kSecond);
  EXPECT_THAT(job_.described(), IsEmpty());
}

TEST_F(JobProcessesTest, OneThatRenamesItselfAllTheTimeIsNotReadForEver) {
  int reads = 0;
  for (int i = 0; i < 100; ++i) {
    put(100, {.comm = "step " + std::to_string(i)});
    job_.update(i * kSecond / 2);
    reads += static_cast<int>(job_.described().size());
  }
  EXPECT_GT(reads, 5);
  EXPECT_LT(reads, 20);
  EXPECT_THAT(alive(), ElementsAre(100));
}

TEST_F(JobProcessesTest, NoMachineAtAllIsAJobWithoutProcesses) {
  job_.update(kSecond);  // there is not even a /proc
  EXPECT_THAT(alive(), IsEmpty());
  EXPECT_THAT(job_.ended(), IsEmpty());
  EXPECT_THAT(job_.described(), IsEmpty());
  EXPECT_EQ(job_.find(100), nullptr);
}

TEST_F(JobProcessesTest, TenThousandComeAndGo) {
  constexpr int kMany = 10'000;
  put(100, {});
  for (int pid = 1000; pid < 1000 + kMany; ++pid) machine_.put_stat(pid, {.ppid = 100});
  job_.update(kSecond);
  EXPECT_EQ(job_.alive().size(), kMany + 1u);
  EXPECT_EQ(job_.described().size(), kMany + 1u);
  for (int pid = 1000; pid < 1000 + kMany; pid += 2) remove(pid);
  job_.update(1500 * kMillisecond);
  EXPECT_EQ(job_.alive().size(), kMany / 2 + 1u);
  ASSERT_EQ(job_.ended().size(), kMany / 2 + 0u);
  for (const Process& ended : job_.ended()) ASSERT_EQ(ended.pid % 2, 0);
  job_.update(2 * kSecond);
  EXPECT_THAT(job_.ended(), IsEmpty());
  EXPECT_EQ(job_.find(1000), nullptr);
  EXPECT_NE(job_.find(1001), nullptr);
}

TEST(MaskedCommand, KeepsSecretsOut) {
  const std::string_view arguments[] = {
      "env",  "HF_TOKEN=abc", "python",      "t.py", "--api-key",          "k1", "--password=p",
      "--lr", "0.1",          "--tokenizer", "gpt2", "http://u:pw@host/x", "a b"};
  EXPECT_EQ(
      masked_command(arguments),
      "env 'HF_TOKEN=***' python t.py --api-key *** '--password=***' --lr 0.1 --tokenizer gpt2 "
      "'http://u:***@host/x' 'a b'");
}

}  // namespace
}  // namespace bedplate::probe
