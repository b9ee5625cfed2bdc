"""The product's command, run by this interpreter from the checkout: nothing of it need be on PATH."""

import sys
from typing import Final

COMMAND: Final = (sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())")
