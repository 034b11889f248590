#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/io/special_tokens.hpp"

/// @file
/// Reading the config.json of a model, with messages that name the file and the setting.

namespace lockstep::io {

/// A configuration, or an object in one, with its file's name, which all messages start with.
struct ConfigFile {
  std::string name;
  std::string model;  ///< what lockstep calls the model: "GPT-2"
  nlohmann::json values;

  /// Reads a file. @throws FileError, CorruptData.
  static ConfigFile read(const std::filesystem::path& path, std::string model);

  /// True for a setting that is there and not null.
  bool has(const char* key) const;
  /// A whole number from 1 to 2147483647. @throws CorruptData.
  std::int64_t size(const char* key) const;
  /// The same, or the fallback where it is missing or null.
  std::int64_t size_or(const char* key, std::int64_t fallback) const;
  /// A row of a table of `count`, where negative ones count from its end. @throws CorruptData.
  std::int64_t row(const char* key, std::int64_t count) const;
  /// The tokens that texts begin and end with; what is none is warned of.
  SpecialTokens special_tokens() const;
  /// A number between the two, both left out. @throws CorruptData.
  double number(const char* key, double above, double below) const;
  /// A number that is not negative. @throws CorruptData.
  double epsilon(const char* key) const;
  /// True or false, or the fallback where it is missing. @throws CorruptData.
  bool flag(const char* key, bool fallback) const;
  /// The object of that name; nothing where it is missing or null. @throws CorruptData.
  std::optional<ConfigFile> object(const char* key) const;
  /// Refuses a value that is present and none of `allowed`. @throws Unsupported.
  void require(const char* key, std::initializer_list<nlohmann::json> allowed) const;

 private:
  std::optional<std::vector<std::int64_t>> tokens(const char* key) const;
  std::string shown(const char* key) const;
};

/// Adds them to a configuration.
void add_special_tokens(nlohmann::ordered_json& values, const SpecialTokens& tokens);

/// Replaces a file at once by JSON. @throws FileError.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& values);

}  // namespace lockstep::io
