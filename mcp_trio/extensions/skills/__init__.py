"""Skills: folders of instructions for agents, served as resources."""

from .extension import IDENTIFIER as IDENTIFIER
from .extension import Skills as Skills
from .frontmatter import SkillError as SkillError
from .resources import add_folder as add_folder

__all__ = ["IDENTIFIER", "SkillError", "Skills", "add_folder"]
