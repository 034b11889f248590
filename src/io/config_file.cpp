#include "io/config_file.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "io/shallow_json.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

// Far more than any configuration needs: it keeps a wrong file from being read whole.
constexpr std::size_t max_config_bytes = std::size_t{1} << 20;

constexpr const char *begin_key = "bos_token_id", *end_key = "eos_token_id";

}  // namespace

ConfigFile ConfigFile::read(const std::filesystem::path& path, std::string model) {
  const MappedFile file(path);
  LOCKSTEP_CHECK(file.bytes().size() <= max_config_bytes, CorruptData, path.string(), ": ",
                 file.bytes().size(), " bytes are too many for a configuration; at most ",
                 max_config_bytes, " are read");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  ConfigFile config{path.string(), std::move(model), {}};
  try {
    config.values = parse_shallow_json<json>(text);
  } catch (const CorruptData& error) {
    LOCKSTEP_THROW(CorruptData, config.name, ": ", error.what());
  } catch (const json::exception& error) {
    LOCKSTEP_THROW(CorruptData, config.name, ": broken JSON: ", error.what());
  }
  LOCKSTEP_CHECK(config.values.is_object(), CorruptData, config.name,
                 ": an object of settings belongs there");
  return config;
}

std::string ConfigFile::shown(const char* key) const {
  const auto found = values.find(key);
  return found == values.end() ? "missing" : found->dump().substr(0, 40);
}

bool ConfigFile::has(const char* key) const {
  const auto found = values.find(key);
  return found != values.end() && !found->is_null();
}

std::int64_t ConfigFile::size(const char* key) const {
  const auto found = values.find(key);
  LOCKSTEP_CHECK(
      found != values.end() && found->is_number_integer() && *found > 0 && *found <= INT32_MAX,
      CorruptData, name, ": '", key, "' is ", shown(key),
      "; a whole number from 1 to 2147483647 belongs there");
  return found->get<std::int64_t>();
}

std::int64_t ConfigFile::size_or(const char* key, std::int64_t fallback) const {
  return has(key) ? size(key) : fallback;
}

std::int64_t ConfigFile::row(const char* key, std::int64_t count) const {
  const auto found = values.find(key);
  LOCKSTEP_CHECK(
      found != values.end() && found->is_number_integer() && *found >= -count && *found < count,
      CorruptData, name, ": '", key, "' is ", shown(key), "; a whole number from ", -count, " to ",
      count - 1, " belongs there");
  const auto row = found->get<std::int64_t>();
  return row < 0 ? row + count : row;
}

SpecialTokens ConfigFile::special_tokens() const { return {tokens(begin_key), tokens(end_key)}; }

/// A number, several or null; nothing where it is missing, or anything else, which no model needs.
std::optional<std::vector<std::int64_t>> ConfigFile::tokens(const char* key) const {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  std::vector<std::int64_t> tokens;
  const json all = found->is_array() ? *found : found->is_null() ? json::array() : json{*found};
  for (const json& token : all) {
    if (!token.is_number_integer()) {
      LOCKSTEP_LOG(warning, name, ": '", key, "' is ", shown(key),
                   ", which is no token's number, and is left out");
      return std::nullopt;
    }
    tokens.push_back(token.get<std::int64_t>());
  }
  return tokens;
}

double ConfigFile::number(const char* key, double above, double below) const {
  const auto found = values.find(key);
  LOCKSTEP_CHECK(found != values.end() && found->is_number() && *found > above && *found < below,
                 CorruptData, name, ": '", key, "' is ", shown(key), "; a number between ", above,
                 " and ", below, " belongs there");
  return found->get<double>();
}

double ConfigFile::epsilon(const char* key) const {
  const auto found = values.find(key);
  LOCKSTEP_CHECK(found != values.end() && found->is_number() && *found >= 0.0, CorruptData, name,
                 ": '", key, "' is ", shown(key), "; a number from 0 on belongs there");
  return found->get<double>();
}

bool ConfigFile::flag(const char* key, bool fallback) const {
  if (!values.contains(key)) return fallback;
  LOCKSTEP_CHECK(values[key].is_boolean(), CorruptData, name, ": '", key, "' is ", shown(key),
                 "; true or false belongs there");
  return values[key].get<bool>();
}

std::optional<ConfigFile> ConfigFile::object(const char* key) const {
  if (!has(key)) return std::nullopt;
  LOCKSTEP_CHECK(values[key].is_object(), CorruptData, name, ": '", key, "' is ", shown(key),
                 "; an object belongs there");
  return ConfigFile{name + ": " + key, model, values[key]};
}

void ConfigFile::require(const char* key, std::initializer_list<json> allowed) const {
  const auto found = values.find(key);
  if (found == values.end() || std::ranges::find(allowed, *found) != allowed.end()) return;
  LOCKSTEP_THROW(Unsupported, name, ": '", key, "' is ", shown(key), "; lockstep's ", model,
                 " has ", allowed.begin()->dump());
}

void add_special_tokens(nlohmann::ordered_json& values, const SpecialTokens& tokens) {
  const auto add = [&](const char* key, const std::optional<std::vector<std::int64_t>>& each) {
    if (!each) return;
    values[key] = each->empty()       ? nlohmann::ordered_json()
                  : each->size() == 1 ? nlohmann::ordered_json(each->front())
                                      : nlohmann::ordered_json(*each);
  };
  add(begin_key, tokens.begin);
  add(end_key, tokens.end);
}

void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& values) {
  AtomicFile file(path);
  file.write(values.dump(2) + "\n");
  file.commit();
}

}  // namespace lockstep::io
