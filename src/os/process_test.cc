#include "os/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "os/test_folder.h"

namespace bedplate::os {
namespace {

using ::testing::HasSubstr;

std::optional<Ended> wait_for(Child& child) {
  pollfd wanted{child.pidfd(), POLLIN, 0};
  if (::poll(&wanted, 1, 10'000) != 1) return std::nullopt;
  return child.try_wait();
}

struct Result {
  int exit_code = -1;
  std::optional<int> signal;
  std::string output;
};

Result run(SpawnRequest request) {
  int ends[2];
  BEDPLATE_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  request.in_child = [&] { ::dup2(ends[1], STDOUT_FILENO); };
  auto started = spawn(request);
  ::close(ends[1]);
  Result result;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;) {
    result.output.append(block, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  const auto ended = wait_for(std::get<Child>(started));
  if (ended) {
    result.exit_code = ended->exit_code();
    result.signal = ended->signal();
  }
  return result;
}

Result run(std::vector<std::string> arguments) {
  return run({.arguments = std::move(arguments), .signals = InheritedSignals::of_this_process()});
}

ExecFailure fail(std::vector<std::string> arguments, std::vector<std::string> environment) {
  return std::get<ExecFailure>(spawn({.arguments = std::move(arguments),
                                      .environment = std::move(environment),
                                      .signals = InheritedSignals::of_this_process()}));
}

TEST(Spawn, ExitCodesAreThoseOfAShell) {
  EXPECT_EQ(run({"true"}).exit_code, 0);
  EXPECT_EQ(run({"sh", "-c", "exit 255"}).exit_code, 255);
  const auto killed = run({"sh", "-c", "kill -SEGV $$"});
  EXPECT_EQ(killed.exit_code, 128 + SIGSEGV);
  EXPECT_EQ(killed.signal, SIGSEGV);
  EXPECT_EQ(run({"true"}).signal, std::nullopt);
}

TEST(Spawn, ArgumentsAndEnvironmentPassAsBytes) {
  EXPECT_EQ(run({"printf", "%s|", "", "a b", "\xff\xfe", "[1,2]"}).output, "|a b|\xff\xfe|[1,2]|");
  EXPECT_EQ(run({.arguments = {"/usr/bin/env"},
                 .environment = std::vector<std::string>{"A=1", "B=\xff"},
                 .signals = InheritedSignals::of_this_process()})
                .output,
            "A=1\nB=\xff\n");
}

TEST(Spawn, WhatCannotRunIsExplainedWithTheShellsExitCode) {
  const TestFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(path("plain")) << "echo hello\n";
  std::ofstream(path("orphan")) << "#!/no/such/interpreter -x\n";
  std::ofstream(path("binary")) << std::string("\1\2\0\3", 4);
  ::chmod(path("orphan").c_str(), 0755);
  ::chmod(path("binary").c_str(), 0755);
  const std::vector<std::string> environment{"PATH=/none:" + folder.path().string()};

  struct Case {
    std::string command;
    int exit_code;
    std::string text;
  };
  for (const auto& c : {
           Case{"no-such-command", 127, "command not found"},
           Case{path("absent"), 127, "no such file"},
           Case{"", 127, "not found"},
           Case{path("plain"), 126, "chmod +x"},
           Case{"plain", 126, "chmod +x"},
           Case{folder.path().string(), 126, "is a folder"},
           Case{"orphan", 126, "/no/such/interpreter does not exist"},
           Case{"binary", 126, "not a program for this machine"},
       }) {
    const auto failure = fail({c.command}, environment);
    EXPECT_EQ(failure.exit_code, c.exit_code) << c.command;
    EXPECT_THAT(failure.text, HasSubstr(c.text)) << c.command;
  }
}

TEST(Spawn, AScriptWithoutAFirstLineRunsInTheShell) {
  const TestFolder folder;
  const auto script = (folder.path() / "script").string();
  std::ofstream(script) << "echo \"$0 $1\"\n";
  ::chmod(script.c_str(), 0755);
  EXPECT_EQ(run({script, "x"}).output, script + " x\n");
}

TEST(Spawn, TheFirstExecutableInPathWins) {
  const TestFolder folder;
  for (const auto* name : {"a", "b"}) {
    std::filesystem::create_directory(folder.path() / name);
    const auto file = folder.path() / name / "tool";
    std::ofstream(file) << "#!/bin/sh\necho " << name << "\n";
    if (*name == 'b') ::chmod(file.c_str(), 0755);
  }
  const auto root = folder.path().string();
  EXPECT_EQ(run({.arguments = {"tool"},
                 .environment = std::vector<std::string>{fmt::format("PATH={0}/a:{0}/b", root)},
                 .signals = InheritedSignals::of_this_process()})
                .output,
            "b\n");
}

TEST(Spawn, TheProgramGetsTheSignalStateThatWasInherited) {
  const auto inherited = InheritedSignals::of_this_process();
  const auto show = [&] {
    return run({.arguments = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"},
                .signals = inherited})
        .output;
  };
  const auto before = show();
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  struct sigaction ignore {};
  struct sigaction old {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old);
  const auto after = show();
  sigaction(SIGPIPE, &old, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  EXPECT_THAT(before, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_EQ(after, before);
}

TEST(Spawn, ProcNumbersTheChildAsWeDo) {
  auto started =
      spawn({.arguments = {"sleep", "60"}, .signals = InheritedSignals::of_this_process()});
  auto& child = std::get<Child>(started);
  EXPECT_EQ(child.proc_pid(HostRoot()), child.pid());
  EXPECT_FALSE(child.try_wait().has_value());
  EXPECT_TRUE(child.send(SIGKILL));
  const auto ended = wait_for(child);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code(), 137);
}

TEST(Spawn, NothingToRunIsAnError) {
  EXPECT_THROW(spawn({.arguments = {}, .signals = InheritedSignals::of_this_process()}), Error);
}

}  // namespace
}  // namespace bedplate::os
