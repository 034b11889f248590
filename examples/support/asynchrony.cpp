#include "support/asynchrony.hpp"

#include <charconv>
#include <optional>
#include <string_view>

namespace examples {
namespace {

std::optional<Asynchrony> parsed(std::string_view text) {
  if (text == "none" || text == "stale") return Asynchrony{.kind = std::string(text)};
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon == std::string_view::npos || (kind != "local" && kind != "diloco")) return {};
  const std::string_view number = text.substr(colon + 1);
  std::int64_t every = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), every);
  if (error != std::errc{} || end != number.data() + number.size() || every < 1) return {};
  return Asynchrony{.kind = std::string(kind), .sync_every = every};
}

}  // namespace

void add_async_option(CLI::App& app, Asynchrony& async) {
  app.add_option_function<std::string>(
         "--async", [&async](const std::string& text) { async = parsed(text).value_or(async); },
         "What ranks exchange: none (gradients, in each step), local:K or diloco:K (parameters, "
         "every K steps), stale (gradients, applied one step later)")
      ->default_str("none")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return parsed(text) ? std::string()
                                : text +
                                      " is none of none, local:K, diloco:K and stale with K "
                                      "steps from 1 on";
          },
          "", "asynchrony"));
}

std::shared_ptr<lockstep::parallel::DelayedReduction> delayed_reduction(const Asynchrony& async) {
  if (async.kind != "stale") return nullptr;
  return std::make_shared<lockstep::parallel::DelayedReduction>();
}

}  // namespace examples
