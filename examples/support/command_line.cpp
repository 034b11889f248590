#include "support/command_line.hpp"

#include <iostream>

namespace examples {

void refuse(const CLI::App& app, const std::string& message) {
  std::cerr << app.get_name() << ": " << message << " (--help lists the options)\n";
  throw Exit{2};
}

void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw Exit{0};
  } catch (const CLI::ParseError& error) {
    refuse(app, error.what());
  }
}

}  // namespace examples
