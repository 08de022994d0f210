#include "os/stop_signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bedplate::os {
namespace {

// How a child ends that gets `signal` while it listens.
template <typename Prepare>
int status_of_child(int signal, Prepare prepare) {
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    StopSignals signals;
    if (signals.came() != 0) ::_exit(10);
    ::raise(signal);
    if (signals.came() == 0) ::_exit(11);
    if (signals.came() != signal) ::_exit(12);
    signals.end_as_asked();
    ::_exit(13);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(StopSignals, AreHeardAndEndTheProcessWhenItSaysSo) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of_child(signal, [=] { ::signal(signal, SIG_DFL); });
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(StopSignals, WhatWasIgnoredStaysSo) {
  const int status = status_of_child(SIGHUP, [] { ::signal(SIGHUP, SIG_IGN); });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 11);
}

TEST(StopSignals, HandlersAreWhatTheyWereAfterwards) {
  struct sigaction before {};
  struct sigaction after {};
  ::sigaction(SIGTERM, nullptr, &before);
  { const StopSignals signals; }
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace bedplate::os
