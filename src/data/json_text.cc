#include "data/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostShown = 40;

std::string shown(const std::string& text) {
  return text.size() <= kMostShown ? to_utf8(text) : to_utf8(text.substr(0, kMostShown)) + "…";
}

// The parser's calls, without a value in memory. The parser itself does not call itself.
class Checker : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(std::string_view what, Code code) : what_(what), code_(code) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return deeper(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override { return deeper(); }
  bool end_array() override { return end(); }

  // What is wrong with it, as the parser says it, without its own names.
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string_view why = error.what();
    if (const auto at = why.find("] "); at != std::string_view::npos) why.remove_prefix(at + 2);
    throw wrong("is no JSON: {}", to_utf8(why));
  }

 protected:
  template <typename... Args>
  Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return {code_, "{} {}", what_, fmt::format(format, std::forward<Args>(args)...)};
  }

 private:
  bool deeper() {
    if (++depth_ <= kMostJsonDepth) return true;
    throw wrong("has more than {} arrays and objects in each other", kMostJsonDepth);
  }
  bool end() {
    --depth_;
    return true;
  }

  const std::string_view what_;
  const Code code_;
  int depth_ = 0;
};

class Builder : public Checker {
 public:
  using Checker::Checker;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    // The parser makes these of integers that it cannot hold.
    if (text.find_first_of(".eE") == std::string::npos) {
      throw wrong(
          "has the integer {}, which 64 bits do not hold: write it as text, or with a point or an "
          "exponent if it may be rounded",
          shown(text));
    }
    return put(value);
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t elements) override { return open(Json::object(), elements); }
  bool key(string_t& name) override {
    auto [at, is_new] = open_.back()->emplace(name, nullptr);
    if (!is_new) throw wrong("has {} twice in an object", shown(name));
    member_ = &*at;
    return true;
  }
  bool end_object() override { return close() && Checker::end_object(); }
  bool start_array(std::size_t elements) override { return open(Json::array(), elements); }
  bool end_array() override { return close() && Checker::end_array(); }

  Json take() { return std::move(root_); }

 private:
  Json* place(Json value) {
    Json* at = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      at = &open_.back()->emplace_back();
    } else if (!open_.empty()) {
      at = member_;
    }
    *at = std::move(value);
    return at;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value, std::size_t elements) {
    if (value.is_object() ? !Checker::start_object(elements) : !Checker::start_array(elements))
      return false;
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // from the root to where the next value goes; stay where they are
  Json* member_ = nullptr;   // of the object that is open: where its next value goes
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what, Code code) {
  Builder builder(what, code);
  Json::sax_parse(text, &builder);
  return builder.take();
}

void check_json(std::string_view text) {
  Checker checker("it", Code::kInvalid);
  Json::sax_parse(text, &checker);
}

}  // namespace bedplate::data
