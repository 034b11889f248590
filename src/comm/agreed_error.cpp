#include "comm/agreed_error.hpp"

#include <algorithm>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

// First letter of an outcome on the wire: what to throw on every rank.
enum Outcome : char { fine = '.', argument = 'a', unsupported = 'u', other = 'o' };

std::string outcome_of(FunctionRef<void()> choose) {
  try {
    choose();
    return {fine};
  } catch (const InvalidArgument& error) {
    return std::string{argument} + error.what();
  } catch (const Unsupported& error) {
    return std::string{unsupported} + error.what();
  } catch (const std::exception& error) {
    return std::string{other} + error.what();
  }
}

}  // namespace

void agree_on_errors(Bootstrap& bootstrap, std::string_view what, FunctionRef<void()> choose) {
  for (const std::string& outcome : bootstrap.all_gather_bytes(outcome_of(choose), what)) {
    const std::string text = outcome.substr(std::min<std::size_t>(1, outcome.size()));
    switch (outcome.empty() ? char{other} : outcome[0]) {
      case fine: break;
      case argument: throw Agreed<InvalidArgument>(text);
      case unsupported: throw Agreed<Unsupported>(text);
      default: throw Agreed<Error>(text);
    }
  }
}

}  // namespace lockstep::comm
