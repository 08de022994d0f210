#include "probe/internal/job_processes.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "os/test_folder.h"
#include "probe/internal/masking.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A machine of a few files, on which processes come and go.
class JobProcessesTest : public ::testing::Test {
 protected:
  struct Fake {
    int ppid = 1;
    std::string comm = "python";
    std::string exe = "/usr/bin/python3.11";
    std::string command = std::string("python\0train.py\0", 16);
    std::string environment = {};
    std::string pids_inside = {};
    std::string maps = {};
    long start = 100;
    char state = 'S';
  };

  void put(int pid, const Fake& fake) {
    const fs::path proc = folder_.path() / "proc" / std::to_string(pid);
    fs::create_directories(proc);
    std::ofstream(proc / "stat") << pid << " (" << fake.comm << ") " << fake.state << " "
                                 << fake.ppid << " 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 "
                                 << fake.start << " 0 0 0\n";
    std::ofstream(proc / "comm") << fake.comm << "\n";
    std::ofstream(proc / "cmdline") << fake.command;
    std::ofstream(proc / "environ") << fake.environment;
    std::ofstream(proc / "maps") << fake.maps;
    std::ofstream(proc / "status")
        << "Name:\t" << fake.comm << "\nNSpid:\t"
        << (fake.pids_inside.empty() ? std::to_string(pid) : fake.pids_inside)
        << "\nVmHWM:\t1 kB\n";
    fs::remove(proc / "exe");
    fs::create_symlink(fake.exe, proc / "exe");
  }
  void remove(int pid) { fs::remove_all(folder_.path() / "proc" / std::to_string(pid)); }

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

  os::TestFolder folder_;
  os::HostRoot host_{folder_.path()};
  JobProcesses job_{host_, nullptr, 100, 0};
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
  const auto why = [&](const Fake& fake) {
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
  fs::create_directories(folder_.path() / "run");
  std::ofstream(folder_.path() / "run" / "hook_off.log")
      << "100\tfirst\n99\tother\n100\tall 512 slots are taken\n";
  EXPECT_THAT(why({.environment = good, .maps = torch}), HasSubstr("all 512 slots are taken"));
}

TEST_F(JobProcessesTest, AnEmbeddedPythonWithTorchIsNamed) {
  put(100, {.comm = "serve", .exe = "/opt/serve", .maps = "7f00 r-xp /x/libtorch_python.so\n"});
  job_.update(kSecond);
  EXPECT_THAT(job_.why_no_hook(*job_.find(100), "/run/hook", "/run"),
              HasSubstr("inside another program"));
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
