// data_cat [--format NAME] URL…: the samples of a data set, one JSON object a line, for tests that
// compare them with what the formats' own programs read:
//
//   {"key": "000017", "fields": [["tokens", "u16", [3], "", "AQACAP8A"]]}
//
// A field is its name, dtype, shape, encoding and bytes in base64. Exit 0, or 1 with a message.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "data/json_values.h"

namespace bedplate::data {
namespace {

void print_all(const Dataset& dataset) {
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    const Sample sample = dataset.get(i);
    nlohmann::ordered_json fields = nlohmann::ordered_json::array();
    for (const Field& field : sample.fields) {
      fields.push_back(nlohmann::ordered_json::array(
          {field.name, name(field.dtype), field.shape, field.encoding,
           to_base64({reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()})}));
    }
    const nlohmann::ordered_json line = {{"key", sample.key}, {"fields", fields}};
    std::puts(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  }
}

int run(std::vector<std::string> arguments) {
  DatasetOptions options;
  if (arguments.size() > 2 && arguments[0] == "--format") {
    options.format = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  try {
    const auto dataset = Dataset::open(arguments, options);
    for (const std::string& note : dataset->notes()) fmt::print(stderr, "{}\n", note);
    print_all(*dataset);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name(error.code()), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace bedplate::data

int main(int count, char** arguments) {
  return bedplate::data::run({arguments + 1, arguments + count});
}
