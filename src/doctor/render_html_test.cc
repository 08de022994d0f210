#include "doctor/render_html.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "base/text.h"
#include "doctor/html.h"
#include "doctor/report_samples.h"
#include "host/host_json.h"
#include "os/host_root.h"

namespace bedplate::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What keeps the elements of the page from closing in order; empty: they do.
std::string misnested(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const auto end = page.find('>', at);
    if (end == std::string_view::npos) return "an element does not end";
    std::string_view inside = page.substr(at + 1, end - at - 1);
    if (inside.starts_with('!')) continue;
    const bool closing = inside.starts_with('/');
    if (closing) inside.remove_prefix(1);
    const std::string tag(inside.substr(0, inside.find_first_of(" /\n")));
    if (tag == "meta" || inside.ends_with('/')) continue;
    if (!closing) {
      open.push_back(tag);
      continue;
    }
    if (open.empty() || open.back() != tag)
      return fmt::format("</{}> inside <{}>", tag, open.empty() ? "" : open.back());
    open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::string body_of(const std::string& page) { return page.substr(page.find("<body>")); }

TEST(Escaped, NeitherOpensAnElementNorEndsAnAttribute) {
  EXPECT_EQ(escaped("<a href='x' b=\"y\">&\x1b"),
            "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;\uFFFD");
}

TEST(RenderHtml, IsWellFormedAndHoldsNothingOfTheJobsMaking) {
  for (const auto& [name, report] : sample_reports()) {
    const std::string page = render_html(report, sample_run(300, 30 * kSecond));
    EXPECT_EQ(misnested(page.substr(page.find("<html"))), "") << name;
    EXPECT_THAT(page, Not(HasSubstr("<script"))) << name;
    EXPECT_EQ(page, to_utf8(page)) << name;
  }
}

TEST(RenderHtml, AsksTheNetworkForNothing) {
  const std::string page = render_html(sample_report("full"), sample_run(300, 30 * kSecond));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const auto needle : {"http://", "https://", "url(", " src=", "@import", "<link"})
    EXPECT_THAT(page, Not(HasSubstr(needle)));
}

TEST(RenderHtml, SaysWhatTheReportSays) {
  const Report report = sample_report("full");
  const std::string page = body_of(render_html(report, sample_run(300, 30 * kSecond)));
  for (const auto& finding : report.findings) {
    EXPECT_THAT(page, HasSubstr(escaped(finding.title)));
    for (const auto& one : finding.evidence) EXPECT_THAT(page, HasSubstr(escaped(one.text)));
    for (const auto& one : finding.ruled_out) EXPECT_THAT(page, HasSubstr(escaped(one.text)));
    EXPECT_THAT(page, HasSubstr(escaped(finding.verify)));
    EXPECT_THAT(page, HasSubstr(escaped(finding.fix)));
  }
  for (const auto& rule : report.not_fired)
    EXPECT_THAT(page, HasSubstr("<code>" + rule + "</code>"));
  EXPECT_THAT(page, HasSubstr("bpf.reclaim: not permitted: needs CAP_BPF"));
  EXPECT_THAT(page, HasSubstr("/sys/fs/cgroup/cpu/job/cpu.stat"));
  EXPECT_THAT(page, HasSubstr("Involuntary context switches"));
  EXPECT_THAT(page, HasSubstr("0.4 % of one core"));
}

TEST(RenderHtml, DrawsTheMachineAndMarksWhatAFindingSpeaksOf) {
  probe::RunData run;
  const os::HostRoot recorded(BEDPLATE_SOURCE_DIR "/tests/hosts/vm-2cpu");
  run.machine["host.json"] = host::to_json(host::describe(recorded));
  Report report = sample_report("full");
  report.findings[0].scope.device = "net/nowhere<1>";
  const std::string page = body_of(render_html(report, run));
  EXPECT_THAT(page, HasSubstr("<h2>Machine</h2>"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("nowhere&lt;1&gt;"));
  EXPECT_EQ(
      misnested(page.substr(page.find("<main"), page.find("</main>") + 7 - page.find("<main"))),
      "");
  run.machine["host.json"] = "{ not json <b>";
  EXPECT_THAT(body_of(render_html(report, run)), HasSubstr("Not drawn: "));
}

TEST(RenderHtml, TheTimeAxisIsDividedAtRoundTimes) {
  const auto axis = [](Nanos length) {
    const std::string page = body_of(render_html(sample_report("full"), sample_run(300, length)));
    const auto begin = page.find("<div class=\"axis\">");
    return page.substr(begin, page.find("</div>", begin) - begin);
  };
  EXPECT_THAT(axis(30 * kSecond), AllOf(HasSubstr(">0<"), HasSubstr(">5 s<"), HasSubstr(">25 s<"),
                                        Not(HasSubstr(">4"))));
  EXPECT_THAT(axis(10'000 * kSecond),
              AllOf(HasSubstr(">30 min<"), HasSubstr(">60 min<"), Not(HasSubstr(" s<"))));
  EXPECT_THAT(axis(1'000'000 * kSecond), AllOf(HasSubstr(">48 h<"), HasSubstr(">240 h<")));
}

TEST(RenderHtml, ALaneIsReadAtTheLineThatItsScaleNames) {
  // The axis ends at 1.4 times the highest value; 1 / 1.4 of the way up is where the scale holds.
  const std::string page =
      body_of(render_html(sample_report("full"), sample_run(300, 30 * kSecond)));
  EXPECT_THAT(page, HasSubstr("<path class=\"scale\" d=\"M0 29H"));
}

TEST(RenderHtml, TheCommandKeepsItsArgumentsWhole) {
  Report report = sample_report("full");
  report.command = {"python", "a b.py", "--nproc-per-node", "<2>"};
  EXPECT_THAT(body_of(render_html(report, {})),
              HasSubstr("<code><span>python</span> <span>&#39;a b.py&#39;</span> "
                        "<span>--nproc-per-node</span> <span>&#39;&lt;2&gt;&#39;</span></code>"));
}

TEST(RenderHtml, ALongRunStaysUnderTwoMegabytes) {
  probe::RunData run = sample_run(50'000, 10'000 * kSecond);  // 20,000 samples a counter
  for (int cpu = 0; cpu < 256; ++cpu)
    run.series.push_back({fmt::format("proc/{}", 10'000 + cpu),
                          "cpu.user_ns",
                          probe::SeriesKind::kCounter,
                          "/proc/" + std::to_string(10'000 + cpu) + "/stat",
                          {{0, 1}, {kSecond, 2}}});
  const std::string page = render_html(sample_report("many_ranks"), run);
  EXPECT_LT(page.size(), 2'000'000U);
  EXPECT_GT(page.size(), 50'000U);
}

TEST(RenderHtml, AnEmptyReportIsAPageToo) {
  const std::string page = body_of(render_html({}, {}));
  EXPECT_THAT(page, HasSubstr("There is nothing to judge"));
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
}

}  // namespace
}  // namespace bedplate::doctor
