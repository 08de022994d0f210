#include "store/internal/credentials.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

constexpr Nanos kRenewBefore = 5 * 60 * kSecond;

using Section = std::map<std::string, std::string, std::less<>>;

// "~/.aws/NAME", or what `variable` says. nullopt: there is no home.
std::optional<std::string> file_path(const Environment& environment, const std::string& variable,
                                     std::string_view file_name) {
  const auto home = environment("HOME");
  const auto named = environment(variable);
  if (!named) return home ? std::optional(fmt::format("{}/.aws/{}", *home, file_name)) : home;
  if (named->starts_with("~/") && home) return *home + named->substr(1);
  return named;
}

// The keys of [title] in an INI file. A line that is indented more than the key before it belongs
// to that key's nested settings.
std::optional<Section> read_section(const std::string& path, std::string_view title) {
  std::ifstream file(path);
  std::optional<Section> section;
  bool inside = false;
  std::size_t indent_of_key = std::string::npos;
  for (std::string line; std::getline(file, line);) {
    const auto text = trim(line);
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    const std::size_t indent = line.find_first_not_of(" \t");
    if (text[0] == '[') {
      const auto name = words(text.substr(1, text.find(']') - 1));
      inside = fmt::format("{}", fmt::join(name, " ")) == title;
      if (inside && !section) section.emplace();
      indent_of_key = std::string::npos;
      continue;
    }
    const auto equals = text.find('=');
    if (!inside || indent > indent_of_key || equals == std::string_view::npos) continue;
    indent_of_key = indent;
    section->insert_or_assign(ascii_lower(trim(text.substr(0, equals))),
                              std::string(trim(text.substr(equals + 1))));
  }
  return section;
}

std::string value_of(const Section& section, std::string_view key) {
  const auto found = section.find(key);
  return found == section.end() ? std::string() : found->second;
}

std::string profile_name(const Environment& environment) {
  return environment("AWS_PROFILE").value_or("default");
}

std::string config_title(const std::string& profile) {
  return profile == "default" ? profile : "profile " + profile;
}

// What was looked at in vain: the lines of the message when nothing is found.
using Looked = std::vector<std::string>;

std::optional<Credentials> from_environment(const Environment& environment, Looked& looked) {
  const auto key_id = environment("AWS_ACCESS_KEY_ID");
  const auto secret = environment("AWS_SECRET_ACCESS_KEY");
  if (key_id && secret)
    return Credentials{*key_id, Secret(*secret),
                       Secret(environment("AWS_SESSION_TOKEN").value_or(""))};
  if (key_id || secret) {
    looked.push_back(fmt::format("the environment ({} is set, {} is not)",
                                 key_id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                                 key_id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID"));
  } else {
    looked.emplace_back("the environment (AWS_ACCESS_KEY_ID is not set)");
  }
  return std::nullopt;
}

// Ways to keys that other programs know and this one does not.
std::string_view foreign_way(const Section& section) {
  for (const std::string_view key : {"credential_process", "sso_session", "sso_start_url",
                                     "role_arn", "web_identity_token_file"}) {
    if (section.contains(key)) return key;
  }
  return {};
}

std::optional<Credentials> from_file(const std::optional<std::string>& path,
                                     const std::string& title, Looked& looked) {
  if (!path) {
    looked.emplace_back("the files in ~/.aws (HOME is not set)");
    return std::nullopt;
  }
  const auto section = read_section(*path, title);
  if (!section) {
    const bool readable = std::ifstream(*path).good();
    looked.push_back(readable ? fmt::format("{} (it has no [{}])", *path, title)
                              : fmt::format("{} (it is missing or cannot be read)", *path));
    return std::nullopt;
  }
  const std::string key_id = value_of(*section, "aws_access_key_id");
  const std::string secret = value_of(*section, "aws_secret_access_key");
  if (!key_id.empty() && !secret.empty())
    return Credentials{key_id, Secret(secret), Secret(value_of(*section, "aws_session_token"))};
  const auto foreign = foreign_way(*section);
  looked.push_back(foreign.empty()
                       ? fmt::format("{} ([{}] has no keys)", *path, title)
                       : fmt::format("{} ([{}] uses {}, which is not supported: put what `aws "
                                     "configure export-credentials --format env` prints into the "
                                     "environment)",
                                     *path, title, foreign));
  return std::nullopt;
}

// "2026-01-02T03:04:05Z".
std::optional<Nanos> parse_iso_time(const std::string& text) {
  std::tm utc{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (rest == nullptr || *rest != 'Z') return std::nullopt;
  return static_cast<Nanos>(::timegm(&utc)) * kSecond;
}

// The session-oriented requests that EC2 calls IMDSv2: a token by PUT, then the role and its keys.
// Source: Amazon EC2 User Guide, "Use the Instance Metadata Service to access instance metadata".
Credentials from_instance(const std::string& url, Deadline deadline) {
  // The service is on the host itself: it answers at once, or there is none.
  const RetryPolicy policy{.retries = 1, .attempt_timeout = kSecond};
  const auto ask = [&](HttpMethod method, std::string_view path, HttpHeaders headers) {
    HttpRequest request;
    request.what = "cannot ask the instance's metadata service for credentials";
    request.method = method;
    request.url = fmt::format("{}/latest/{}", url, path);
    request.headers = std::move(headers);
    request.proxy = HttpRequest::Proxy::kNone;  // it would see the keys
    return perform_one(std::move(request), deadline, policy).text;
  };
  const std::string token =
      ask(HttpMethod::kPut, "api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}});
  const HttpHeaders session{{"X-aws-ec2-metadata-token", token}};
  const std::string folder = "meta-data/iam/security-credentials/";
  const std::string roles = ask(HttpMethod::kGet, folder, session);
  const auto role = words(roles);
  if (role.empty()) throw Error(Code::kPermission, "the instance has no role");
  const std::string text = ask(HttpMethod::kGet, folder + percent_encode(role.front()), session);
  const auto keys = nlohmann::json::parse(text, nullptr, false);
  const auto value = [&](const char* key) {
    const bool there = keys.is_object() && keys.contains(key) && keys[key].is_string();
    return there ? keys[key].get<std::string>() : std::string();
  };
  Credentials found{value("AccessKeyId"), Secret(value("SecretAccessKey")), Secret(value("Token")),
                    parse_iso_time(value("Expiration"))};
  if (found.key_id.empty() || found.secret_key.empty())
    throw Error(Code::kCorrupt, "the instance's metadata service gives no keys for its role");
  return found;
}

bool expired(const Credentials& credentials, Nanos wall_now) {
  return credentials.expires_at && wall_now + kRenewBefore >= *credentials.expires_at;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = ::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

bool switched_on(const Environment& environment, const std::string& name) {
  const auto value = environment(name);
  if (!value || *value == "0") return false;
  if (*value == "1") return true;
  throw Error(Code::kInvalid, "{} is '{}' in the environment: it is 1 or 0", name, to_utf8(*value));
}

Credentials CredentialChain::get(Deadline deadline) {
  Kept& kept = kept_.get();
  const std::unique_lock lock(kept.mutex, std::chrono::nanoseconds(deadline.left()));
  if (!lock) {
    throw Error(Code::kTimeout,
                "the deadline passed while another thread looked for credentials for S3");
  }
  if (!kept.credentials || expired(*kept.credentials, sources_.clock->wall_now()))
    kept.credentials = look_up(deadline);
  return *kept.credentials;
}

void CredentialChain::forget() {
  Kept& kept = kept_.get();
  const std::lock_guard lock(kept.mutex);
  kept.credentials.reset();
}

Credentials CredentialChain::look_up(Deadline deadline) const {
  const Environment& environment = sources_.environment;
  const std::string profile = profile_name(environment);
  Looked looked;
  if (auto found = from_environment(environment, looked)) return *std::move(found);
  const auto shared = file_path(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
  if (auto found = from_file(shared, profile, looked)) return *std::move(found);
  const auto config = file_path(environment, "AWS_CONFIG_FILE", "config");
  if (shared || config) {
    if (auto found = from_file(config, config_title(profile), looked)) return *std::move(found);
  }
  if (sources_.instance_profile == CredentialSources::InstanceProfile::kRefused) {
    looked.push_back(
        fmt::format("the instance's role (it is asked with {}=1, or the option "
                    "instance_profile)",
                    kInstanceProfileVariable));
  } else {
    try {
      return from_instance(sources_.metadata_url, deadline);
    } catch (const Error& error) {
      if (error.code() == Code::kTimeout) throw;
      looked.push_back(fmt::format("the instance's role ({})", error.what()));
    }
  }
  throw Error(
      Code::kPermission,
      "no credentials for S3; looked at {}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
      "(AWS_SESSION_TOKEN too, if there is one), or write aws_access_key_id and "
      "aws_secret_access_key under [{}] in {}. For a public bucket: {}=1, or the option "
      "anonymous",
      fmt::join(looked, ", "), profile, shared.value_or("~/.aws/credentials"), kAnonymousVariable);
}

AwsSettings aws_settings(const Environment& environment) {
  const auto first = [&](const char* one, const char* other) {
    return environment(one).value_or(environment(other).value_or(""));
  };
  AwsSettings settings{first("AWS_REGION", "AWS_DEFAULT_REGION"),
                       first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")};
  const auto path = file_path(environment, "AWS_CONFIG_FILE", "config");
  if (!path) return settings;
  const auto section = read_section(*path, config_title(profile_name(environment)));
  if (!section) return settings;
  if (settings.region.empty()) settings.region = value_of(*section, "region");
  if (settings.endpoint.empty()) settings.endpoint = value_of(*section, "endpoint_url");
  return settings;
}

}  // namespace bedplate::store
