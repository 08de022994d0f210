// The fuzzers without a fuzzer: for machines that have no clang, and for every run of the tests.
//
//   fuzz_replay list                       the targets' names
//   fuzz_replay make FOLDER                writes each target's seeds to FOLDER/TARGET/
//   fuzz_replay run FOLDER TARGET COUNT    its corpus, then COUNT mutations of it, always the same
//   fuzz_replay one TARGET FILE            what was found
//
// An input that ends the process is kept in the temporary folder; its name is printed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/text.h"
#include "target.h"

namespace bedplate::fuzz {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), std::ssize(bytes));
  if (!out.flush()) {
    fmt::print(stderr, "cannot write {}\n", path.string());
    std::exit(3);
  }
}

// Written from a handler of a signal: all of it is there before.
std::string running;       // the input
std::string running_path;  // where it goes when it ends the process

void keep_input(int signal) {
  std::FILE* const out = std::fopen(running_path.c_str(), "wb");
  if (out != nullptr) {
    std::fwrite(running.data(), 1, running.size(), out);
    std::fclose(out);
  }
  std::fprintf(stderr, "signal %d; the input is in %s\n", signal, running_path.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Target& target, std::string input) {
  running = std::move(input);
  target.run(std::as_bytes(std::span(running)));
}

std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  constexpr std::uint64_t kOdd[] = {0,          1,          0x7f,       0xff,  0x7fffffff,
                                    0xffffffff, 1ULL << 63, ~0ULL >> 1, ~0ULL, 0x8000000000000007};
  std::string input = corpus[below(corpus.size())];
  for (std::size_t steps = 1 + below(4); steps > 0; --steps) {
    const std::size_t at = below(input.size());
    switch (below(7)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 2: {  // a number that is often wrong
        const std::uint64_t value = kOdd[below(std::size(kOdd))];
        const std::size_t bytes = std::size_t{1} << below(4);
        input.replace(at, bytes, reinterpret_cast<const char*>(&value), bytes);
        break;
      }
      case 3:
        input.resize(at);
        break;
      case 4:
        input.erase(at, 1 + below(64));
        break;
      case 5:  // some of it once more
        input.insert(at, input.substr(below(input.size()), 1 + below(64)));
        break;
      default: {  // the end of another one
        const std::string& other = corpus[below(corpus.size())];
        input = input.substr(0, at) + other.substr(below(other.size()));
        break;
      }
    }
  }
  return input;
}

std::vector<std::string> corpus_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> corpus;
  for (const fs::path& path : paths) corpus.push_back(read_file(path));
  return corpus;
}

int run_all(const fs::path& folder, const Target& target, std::int64_t count) {
  std::vector<std::string> corpus = corpus_of(folder / target.name);
  if (corpus.empty()) {
    fmt::print(stderr, "{} holds no corpus of {}\n", folder.string(), target.name);
    return 3;
  }
  running_path =
      (fs::temp_directory_path() / fmt::format("bedplate-fuzz-{}-{}", target.name, ::getpid()))
          .string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM})
    std::signal(signal, keep_input);
  for (const std::string& input : corpus) run(target, input);
  run(target, "");
  // The seeds of today's code too: a corpus that no longer is what it was made for would test less.
  for (std::string& seed : target.seeds()) {
    run(target, seed);
    corpus.push_back(std::move(seed));
  }
  std::mt19937_64 random(20'240'229);
  for (std::int64_t i = 0; i < count; ++i) run(target, mutated(corpus, random));
  fmt::print("{}: {} of the corpus and {} mutations ended well\n", target.name, corpus.size(),
             count);
  return 0;
}

void make(const fs::path& folder) {
  for (const Target& target : all_targets()) {
    fs::create_directories(folder / target.name);
    int number = 0;
    for (const std::string& seed : target.seeds())
      write_file(folder / target.name / fmt::format("seed-{}", number++), seed);
  }
}

int main_of(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  if (verb == "list" && arguments.size() == 1) {
    for (const Target& target : all_targets()) fmt::print("{}\n", target.name);
    return 0;
  }
  if (verb == "make" && arguments.size() == 2) {
    make(arguments[1]);
    return 0;
  }
  if (verb == "one" && arguments.size() == 3) {
    run(target_of_name(arguments[1]), read_file(arguments[2]));
    return 0;
  }
  const auto count = arguments.size() == 4 ? to_int(arguments[3]) : std::nullopt;
  if (verb == "run" && count && *count >= 0)
    return run_all(arguments[1], target_of_name(arguments[2]), *count);
  fmt::print(stderr,
             "usage: fuzz_replay list | make FOLDER | run FOLDER TARGET COUNT | one TARGET FILE\n");
  return 2;
}

}  // namespace
}  // namespace bedplate::fuzz

int main(int count, char** arguments) {
  return bedplate::fuzz::main_of({arguments + 1, arguments + count});
}
