#include "store/internal/read_engine.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

const ReadEngine& choose() {
  const char* const wanted = std::getenv("BEDPLATE_READ_ENGINE");
  std::vector<std::string_view> names;
  for (const ReadEngine* engine : all_read_engines()) {
    names.push_back(engine->name);
    if (wanted == nullptr || *wanted == '\0') {
      if (engine->works()) return *engine;
    } else if (engine->name == wanted) {
      if (engine->works()) return *engine;
      throw Error(Code::kUnsupported,
                  "BEDPLATE_READ_ENGINE={}: this kernel, or a filter around this process, does not "
                  "let it work; unset the variable",
                  wanted);
    }
  }
  throw Error(Code::kInvalid, "BEDPLATE_READ_ENGINE={}: there are {}",
              to_utf8(wanted == nullptr ? "" : wanted), fmt::join(names, ", "));
}

}  // namespace

const ReadEngine& best_read_engine() {
  static const ReadEngine& engine = choose();
  return engine;
}

}  // namespace bedplate::store
