#include "checkpoint/state_file.hpp"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "checkpoint/json.hpp"
#include "io/shallow_json.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json, nlohmann::ordered_json;

constexpr double infinity = std::numeric_limits<double>::infinity();

json json_of(double value) {
  // A number in an object of its own is what JSON has no number for: a text could be one.
  if (std::isnan(value)) return {{"number", "NaN"}};
  if (std::isinf(value)) return {{"number", value > 0 ? "Infinity" : "-Infinity"}};
  return value;
}

json json_of(const Values& values) {
  json object = json::object();
  for (const auto& [name, value] : values.all())
    object[name] = std::visit(
        [](const auto& each) -> json {
          if constexpr (std::is_same_v<std::decay_t<decltype(each)>, double>)
            return json_of(each);
          else
            return each;
        },
        value);
  return object;
}

json json_of(const NamedValues& named) {
  json object = json::object();
  for (const auto& [name, values] : named) object[name] = json_of(values);
  return object;
}

double special_number(const json& object) {
  const auto text = object.at("number").get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return infinity;
  LOCKSTEP_CHECK(text == "-Infinity", CorruptData, "no number: ", object.dump());
  return -infinity;
}

Value value_of(const json& each) {
  if (each.is_boolean()) return each.get<bool>();
  if (each.is_string()) return each.get<std::string>();
  if (each.is_number_float()) return each.get<double>();
  // Numbers that fit are signed, however they were given: `Values::get` takes either.
  if (each.is_number_unsigned() &&
      each.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return each.get<std::uint64_t>();
  if (each.is_number_integer()) return each.get<std::int64_t>();
  if (each.is_object()) return special_number(each);
  LOCKSTEP_THROW(CorruptData, "no value: ", each.dump());
}

NamedValues named_values_of(const json& object) {
  NamedValues named;
  for (const auto& [name, values] : object.get<std::map<std::string, json>>()) {
    Values& own = named[name];
    for (const auto& [key, value] : values.get<std::map<std::string, json>>())
      std::visit([&](const auto& each) { own.set(key, each); }, value_of(value));
  }
  return named;
}

template <class T, class Parse>
T parse_json(std::string_view text, std::string_view source, const Parse& parse) {
  try {
    return parse(io::parse_shallow_json<json>(text));
  } catch (const json::exception& error) {
    LOCKSTEP_THROW(CorruptData, source, " ", describe(error, text));
  } catch (const CorruptData& error) {
    LOCKSTEP_THROW(CorruptData, source, ": ", error.what());
  }
}

/// @throws InvalidArgument for a text that JSON cannot have.
void check_texts(const NamedValues& values) {
  for (const auto& [name, state] : values) try {
      (void)json_of(state).dump();
    } catch (const json::type_error&) {
      LOCKSTEP_THROW(
          InvalidArgument, "state ", name,
          " has a text that is not UTF-8; keep bytes in a tensor of u8, alike on all ranks or of "
          "each rank its own (state_of_each_rank), or write them as hexadecimal digits");
    }
}

}  // namespace

std::string write_values(const NamedValues& values) {
  check_texts(values);
  return json_of(values).dump();
}

NamedValues parse_values(std::string_view text, std::string_view source) {
  return parse_json<NamedValues>(text, source, named_values_of);
}

std::string write_state_file(std::int64_t step, const NamedValues& shared,
                             std::span<const std::string> ranks) {
  check_texts(shared);
  ordered_json file{{"step", step}, {"states", json_of(shared)}, {"ranks", ordered_json::array()}};
  for (const std::string& rank : ranks) file["ranks"].push_back(ordered_json::parse(rank));
  return file.dump(1) + "\n";
}

StateFile parse_state_file(std::string_view text, std::string_view source) {
  return parse_json<StateFile>(text, source, [](const json& file) {
    StateFile state{.step = file.at("step").get<std::int64_t>(),
                    .shared = named_values_of(file.at("states")),
                    .ranks = {}};
    for (const json& rank : file.at("ranks")) state.ranks.push_back(named_values_of(rank));
    return state;
  });
}

}  // namespace lockstep::checkpoint
